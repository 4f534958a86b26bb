"""More methods for veRL, built on verl-trgrpo: GDPO, Constrained GRPO and iGRPO."""
