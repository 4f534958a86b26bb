"""How builders draw some of a source's rows, and their words for rows that are left out."""

import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

MALFORMED = "malformed"
NOT_DRAWN = "not drawn for the limit"


def draw(items: Sequence[Item], count: int | None, seed: str) -> list[Item]:
    """Return `count` of the items, drawn with `seed`, in their order; all where `count` is None or there are no more."""
    if count is None or count >= len(items):
        return list(items)
    positions = random.Random(seed).sample(range(len(items)), count)
    return [items[position] for position in sorted(positions)]
