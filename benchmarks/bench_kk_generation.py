"""Measure how many unique-solution Knights-and-Knaves puzzles per second are generated on one core.

Compares `generate_puzzles`, which also wards off repetition up to renaming and writes the quiz, with reasoning-gym's own
solver on the same sampler, which does neither; and measures the builder as a whole, from the sampler to the files and
their manifest. Run ``python benchmarks/bench_kk_generation.py``.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from reasoning_gym.logic.knights_knaves import KKProblemSampler, KnightsKnavesDataset

from verl_trgrpo.tasks.knights_and_knaves.logic import canonical_key
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles
from verl_trgrpo.tasks.knights_and_knaves.rows import KkOptions, build


def generated_here(n_people: int, seed: int) -> Iterator[object]:
    return generate_puzzles(n_people, 10_000, seed)


def generated_by_reference(n_people: int, seed: int) -> Iterator[object]:
    sampler = KKProblemSampler(seed, n_people)
    while True:
        statements = sampler.sample()
        if len(KnightsKnavesDataset.find_solution(statements)) == 1:
            yield statements


def puzzles_per_second(
    source: Callable[[int, int], Iterator[object]], n_people: int, count: int, repeats: int
) -> float:
    """Return the best of several runs: on a shared machine the fastest is the least disturbed."""
    best = 0.0
    for seed in range(repeats):
        stream = source(n_people, seed)
        next(stream)  # imports and caches
        start = time.perf_counter()
        made = sum(1 for _ in islice(stream, count))
        best = max(best, made / (time.perf_counter() - start))
    return best


def built_per_second(n_people: int, count: int, repeats: int) -> float:
    """Return the best of several builds of `count` puzzles, a tenth of them for testing."""
    test = max(1, count // 10)
    best = 0.0
    for seed in range(repeats):
        with tempfile.TemporaryDirectory() as directory:
            options = KkOptions(
                out=Path(directory) / "kk",
                people=(n_people,),
                train=count - test,
                test=test,
                seed=seed,
            )
            start = time.perf_counter()
            build(options)
            best = max(best, count / (time.perf_counter() - start))
    return best


def microseconds_per_key(n_people: int, count: int) -> float:
    puzzles = list(generate_puzzles(n_people, count, 0))
    start = time.perf_counter()
    for puzzle in puzzles:
        canonical_key(puzzle.statements)
    return (time.perf_counter() - start) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--people", type=int, nargs="+", default=[3, 4, 5, 6, 7, 8])
    parser.add_argument("--count", type=int, default=1000, help="puzzles per run (default 1000)")
    parser.add_argument("--reference-count", type=int, default=200, help="the same for reasoning-gym (default 200)")
    parser.add_argument("--repeats", type=int, default=3, help="runs, of which the best counts (default 3)")
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    arguments = parser.parse_args()
    figures = {}
    print("| people | puzzles/s | reasoning-gym solver | ratio | built/s | canonical key |")
    print("|---|---|---|---|---|---|")
    for n_people in arguments.people:
        here = puzzles_per_second(generated_here, n_people, arguments.count, arguments.repeats)
        there = puzzles_per_second(generated_by_reference, n_people, arguments.reference_count, arguments.repeats)
        key = microseconds_per_key(n_people, arguments.count)
        built = built_per_second(n_people, arguments.count, arguments.repeats)
        figures[n_people] = {"puzzles_per_second": here, "reference_per_second": there, "built_per_second": built}
        print(f"| {n_people} | {here:,.0f} | {there:,.0f} | {here / there:.1f} | {built:,.0f} | {key:.0f} us |")
    if arguments.out:
        arguments.out.write_text(json.dumps({"people": figures}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
