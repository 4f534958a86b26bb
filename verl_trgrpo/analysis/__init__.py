"""What token weights do to gradients, and how sharp a checkpoint's loss is: measured on a model's own rollouts."""
