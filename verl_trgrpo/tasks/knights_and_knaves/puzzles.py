"""Knights-and-Knaves puzzles with exactly one solution, generated without repetition.

The statements come from the sampler of `reasoning-gym`, a port of the generator behind the public data set
`K-and-K/knights-and-knaves` (github.com/AlphaPav/mem-kk-logic, arXiv 2410.23123). Solving, the check for repetition
and the wording are this package's own.
"""

import random
from collections.abc import Container, Iterator
from dataclasses import dataclass

from verl_trgrpo.tasks.knights_and_knaves.canonical import canonical_key
from verl_trgrpo.tasks.knights_and_knaves.logic import MAX_PEOPLE, Statement, solve, unique_solution
from verl_trgrpo.tasks.knights_and_knaves.wording import choose_names, quiz_text

__all__ = ["MAX_PEOPLE", "MIN_PEOPLE", "Puzzle", "canonical_key", "generate_puzzles", "solve"]

MIN_PEOPLE = 2

# How many puzzles with exactly one solution the sampler's statements allow, up to `canonical_key`. From four people on
# there are millions.
DISTINCT_PUZZLES = {2: 95, 3: 15_088}

# Draws in a row without a new puzzle after which the search ends. With two people the rarest puzzle turns up once in
# 1,300 draws.
MAX_BARREN_DRAWS = {2: 20_000}
DEFAULT_MAX_BARREN_DRAWS = 200_000


@dataclass(frozen=True)
class Puzzle:
    """A puzzle with exactly one solution; person ``i`` is called ``names[i]`` and speaks ``statements[i]``.

    quiz: the puzzle in English.
    statements: see `verl_trgrpo.tasks.knights_and_knaves.logic`.
    solution: True for a knight, one entry per person.
    index: position in the stream or file that the puzzle comes from, from 0.
    """

    quiz: str
    names: tuple[str, ...]
    statements: tuple[Statement, ...]
    solution: tuple[bool, ...]
    index: int


def generate_puzzles(n_people: int, count: int, seed: int, exclude: Container[str] | None = None) -> Iterator[Puzzle]:
    """Return an iterator of exactly `count` puzzles, no two with the same `canonical_key`.

    The stream depends on `n_people`, `seed` and `exclude` only: a larger `count` continues it.

    Args:
        n_people: 2 to 8.
        count: how many, 0 or more; at most 95 for two people and 15,088 for three, where no more exist.
        seed: any integer.
        exclude: canonical keys of puzzles that must not appear, such as those of a test set.

    Raises:
        ValueError: at once for arguments out of range or a `count` that cannot exist; while iterating when
            many draws in a row bring nothing new, which happens close to the number of puzzles that exist.
    """
    problems = []
    if not MIN_PEOPLE <= n_people <= MAX_PEOPLE:
        problems.append(f"n_people is {n_people}; puzzles have {MIN_PEOPLE} to {MAX_PEOPLE} people")
    if count < 0:
        problems.append(f"count is {count}; ask for 0 or more puzzles")
    if count > DISTINCT_PUZZLES.get(n_people, count):
        problems.append(
            f"count is {count}, but only {DISTINCT_PUZZLES[n_people]} different puzzles with {n_people} people exist; "
            "ask for fewer, or for more people"
        )
    if problems:
        raise ValueError("; ".join(problems))
    return _generate(n_people, count, seed, exclude if exclude is not None else ())


def _generate(n_people: int, count: int, seed: int, exclude: Container[str]) -> Iterator[Puzzle]:
    from reasoning_gym.logic.knights_knaves import KKProblemSampler  # slow import, needed for sampling only

    # Both generators get a seed that also depends on the size: one stream of random numbers for all sizes would
    # make the puzzles of different sizes resemble each other.
    sampler = KKProblemSampler(random.Random(f"statements/{n_people}/{seed}").getrandbits(64), n_people)
    seen: set[str] = set()
    barren = 0
    while len(seen) < count:
        statements = sampler.sample()
        solution = unique_solution(statements)
        key = canonical_key(statements) if solution is not None else ""
        if solution is None or key in seen or key in exclude:
            barren += 1
            if barren == MAX_BARREN_DRAWS.get(n_people, DEFAULT_MAX_BARREN_DRAWS):
                raise ValueError(
                    f"only {len(seen)} of {count} different puzzles with {n_people} people were found: {barren} draws "
                    "in a row brought none that is new, has one solution and is not excluded; ask for fewer puzzles, "
                    "or more people in each"
                )
            continue
        barren = 0
        index = len(seen)
        seen.add(key)
        rng = random.Random(f"wording/{n_people}/{seed}/{index}")
        names = choose_names(n_people, rng)
        yield Puzzle(quiz_text(names, statements, rng), names, statements, solution, index)
