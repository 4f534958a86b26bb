"""Construct what the workers of a run construct before they load weights: a program of a sandbox (`checks.constructed`)."""
