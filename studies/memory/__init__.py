"""How often the memory plan is right on public cases."""
