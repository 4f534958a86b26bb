"""The quickstart's puzzles as veRL parquet: none of them was seen in the tiny model's warm start."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from verl_trgrpo import __version__
from verl_trgrpo.data import parquet, schema
from verl_trgrpo.data.kk_prompts import format_solution
from verl_trgrpo.data.kk_puzzles import Puzzle, generate_puzzles
from verl_trgrpo.tiny_model.demonstrations import WarmStartPuzzles
from verl_trgrpo.tiny_model.puzzle_texts import prompt_messages

# Puzzles by number of people. With two people there are only 95 different ones, too few to learn from and be tested on.
TRAIN = {3: 1024}
TEST = {3: 256}

FILES = ("train.parquet", "test.parquet")


def build_dataset(directory: Path, seed: int = 0) -> bool:
    """Write ``train.parquet``, ``test.parquet`` and a manifest, or find them there.

    No test puzzle equals a train puzzle or a warm-start puzzle, also not after renaming or reordering people.

    Args:
        directory: where to; created.
        seed: same seed, same files.

    Returns:
        whether anything was built.

    Raises:
        ValueError: when the directory cannot be written.
    """
    arguments = {"train": str(TRAIN), "test": str(TEST), "seed": seed}
    recorded = parquet.read_manifest(directory)
    if recorded and recorded.get("arguments") == arguments and parquet.is_intact(directory, recorded):
        return False
    splits: dict[str, list[Puzzle]] = {name: [] for name in FILES}
    for n_people in TRAIN:
        stream = generate_puzzles(n_people, TEST[n_people] + TRAIN[n_people], seed, exclude=WarmStartPuzzles())
        # Test first: another number of train puzzles would leave the test set as it is.
        splits["test.parquet"] += itertools.islice(stream, TEST[n_people])
        splits["train.parquet"] += stream
    with parquet.staged_files(directory, [*FILES, parquet.MANIFEST]) as stage:
        for name, puzzles in splits.items():
            random.Random(f"{name}/{seed}").shuffle(puzzles)
            rows = [_row(puzzle, index, name.removesuffix(".parquet")) for index, puzzle in enumerate(puzzles)]
            schema.check_rows(rows)
            parquet.write_parquet(stage / name, rows, schema.arrow_schema([]))
        files = {name: {"rows": len(splits[name]), "sha256": parquet.file_sha256(stage / name)} for name in FILES}
        parquet.write_manifest(stage, {"package_version": __version__, "arguments": arguments, "files": files})
    return True


def _row(puzzle: Puzzle, index: int, split: str) -> dict:
    return schema.build_row(
        data_source=f"kk_{len(puzzle.names)}ppl",
        prompt=prompt_messages(puzzle),
        ability="logic",
        ground_truth=format_solution(puzzle.names, puzzle.solution),
        index=index,
        split=split,
        extra_info={},
    )
