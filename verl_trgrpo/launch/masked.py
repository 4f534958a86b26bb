"""Write what a training says to its log without some values.

    ... | VERL_TRGRPO_MASKED=hunter2 python -m verl_trgrpo.launch.masked > train-1.log

veRL prints its resolved configuration. The filter is a process of its own between the training and the file, so that no value is
ever on disk, and it lives as long as the training does, also without the launcher.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

MASKED_VALUES = "VERL_TRGRPO_MASKED"
"""Variable of the environment with the values, one in a line: arguments of a command could be read by other users."""

_SHORTEST = 4
"""Characters of a value that is masked; a shorter one would be found everywhere."""
_BLOCK = 1 << 16


class Mask:
    """Replace values in a stream by ``***``; of a value that may have begun, the beginning waits for the next block."""

    def __init__(self, values: Iterable[str]) -> None:
        lines = (line.strip().encode() for value in values for line in value.splitlines())
        self._values = sorted({line for line in lines if len(line) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile(b"|".join(map(re.escape, self._values)) or b"(?!)")
        self._begun = b""

    def __call__(self, block: bytes) -> bytes:
        """Return what can be written after a block; an empty one is the end."""
        text = self._known.sub(b"***", self._begun + block)
        longest = len(self._values[0]) - 1 if self._values and block else 0
        starts = range(max(0, len(text) - longest), len(text))
        end = next((at for at in starts if any(each.startswith(text[at:]) for each in self._values)), len(text))
        self._begun = text[end:]
        return text[:end]


def main() -> None:
    mask = Mask([os.environ.get(MASKED_VALUES, "")])
    while block := os.read(0, _BLOCK):
        _write(mask(block))
    _write(mask(b""))


def _write(text: bytes) -> None:
    """Write all of a text; where it cannot be written, as on a full disk, the training goes on without it."""
    try:
        while text:
            text = text[os.write(1, text) :]
    except OSError:
        return


if __name__ == "__main__":
    main()
