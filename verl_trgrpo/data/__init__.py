"""Training data: builders of veRL parquet files for the three tasks, and what checks and cleans them."""
