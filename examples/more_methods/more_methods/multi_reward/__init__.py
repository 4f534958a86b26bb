"""Several rewards: GDPO (arXiv 2601.05242) and Constrained GRPO (arXiv 2602.05863)."""
