"""Demonstrations that run from a checkout; no part of the package."""
