"""Words of this package."""
