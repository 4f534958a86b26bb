"""Experiments of the authors, with their records; no part of the package, and they may change or go with any commit."""
