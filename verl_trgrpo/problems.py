"""Everything that is wrong with some input, reported at once."""

from collections.abc import Sequence
from typing import Any


class ProblemsError(ValueError):
    """One or more problems with input; the message lists them, `problems` has them apart."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        lines = self.problems if len(self.problems) == 1 else [f"{len(self.problems)} problems:", *self.problems]
        super().__init__("\n- ".join(lines))


def raise_problems(problems: Sequence[str]) -> None:
    """Raise one ProblemsError, which is a ValueError, for all `problems`, if there are any."""
    if problems:
        raise ProblemsError(problems)


def shorten(value: Any, limit: int = 100) -> str:
    """Return `value` for a message, as Python would write it, in at most `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
