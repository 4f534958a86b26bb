"""Models and data of the demonstrations: ``verl-trgrpo quickstart``, ``search demo`` and ``small-lm``.

`puzzles` and `search` each have a model of about a million parameters that ships as a checkpoint (``CHECKPOINT``). `small_lm`
converts SmolLM2-135M-Instruct and merges a LoRA adapter that ships, for `puzzles` or `word_problems`. The checkpoints and
adapters are made by ``recipes/demos``, outside the package.
"""

from typing import Literal

# Here and not in `small_lm`, so that command lines can show it without the imports of that module.
TaskName = Literal["word_problems", "puzzles"]
