"""iGRPO: training prompts carry the best of several drafts (arXiv 2602.09000)."""
