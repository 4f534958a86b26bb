"""Any task of reasoning-gym, with its own verifier as the reward."""
