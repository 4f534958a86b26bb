"""Measure the effect of token weights on gradients, and the sharpness of the loss, on a model's own rollouts."""
