"""The tiny language model of the quickstart, its training and its checkpoint."""

from pathlib import Path

# Checkpoint that comes with the package: weights in bf16, tokenizer, and manifest.json, which says how it was made.
CHECKPOINT = Path(__file__).parent / "checkpoint"
