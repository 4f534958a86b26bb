"""Training data: puzzle generation, prompts and veRL parquet files."""
