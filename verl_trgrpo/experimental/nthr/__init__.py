"""NTHR: tokens of wrong responses that the group's right responses depend on are punished less (arXiv 2505.18830)."""
