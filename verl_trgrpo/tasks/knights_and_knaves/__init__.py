"""Knights-and-Knaves puzzles: sampled, worded, read from public files, and built into veRL parquet."""
