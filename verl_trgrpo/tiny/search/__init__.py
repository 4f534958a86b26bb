"""A small invented world to search in, questions about it, and a tiny language model that can search."""

from pathlib import Path

# Checkpoint that comes with the package: weights in bf16, tokenizer, and manifest.json, which says how it was made.
CHECKPOINT = Path(__file__).parent / "checkpoint"
