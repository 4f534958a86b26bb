"""A real language model that fits two cores: SmolLM2-135M-Instruct, its warm starts and its tasks."""

from typing import Literal

# Here and not in `task`, whose import is not quick, for command lines.
TaskName = Literal["word_problems", "puzzles"]
