"""What the search demonstration trains on: questions as veRL parquet, the world's documents and their index."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from verl_trgrpo.common.files import write_text
from verl_trgrpo.data import schema
from verl_trgrpo.data.build import BuildPlan, Counts, DataFile, DataSet, build_data_set
from verl_trgrpo.retrieval.build import IndexOptions, build_index
from verl_trgrpo.tiny.search import prompt_messages
from verl_trgrpo.tiny.search_world import Question, World, corpus_text, make_world

# People asked about; one question each, half of them with two searches. No person is in both splits.
TRAIN, TEST = 768, 192

DATA_SOURCE = "search_qa"
AGENT_NAME = "trgrpo_search"
CORPUS = "corpus.jsonl"


def prepare(directory: Path, seed: int) -> bool:
    """Write data, corpus and index below `directory`, or find them there; return whether anything was built."""
    built = build_dataset(directory / "data", seed)
    options = IndexOptions(corpus=directory / "data" / CORPUS, out=directory / "index")
    try:
        indexed = build_index(options)
    except ValueError:  # another corpus or format, or damaged; all of it is made from the seed, so nothing can be lost
        indexed = build_index(replace(options, force=True))
    return built or indexed.built


def build_dataset(directory: Path, seed: int = 0) -> bool:
    """Write ``train.parquet``, ``test.parquet``, a manifest and ``corpus.jsonl``, or find them there.

    The world shares no name with those of the warm start.

    Args:
        directory: where to; created.
        seed: same seed, same files.

    Returns:
        whether anything was built.

    Raises:
        ValueError: when the directory cannot be written.
    """
    world = make_world("training", seed)
    arguments = {"train": TRAIN, "test": TEST, "seed": seed}
    # Not `search demo --seed`, which is the seed of the training.
    imports = "from pathlib import Path; from verl_trgrpo.tiny.search_dataset import build_dataset"
    call = f"build_dataset(Path({directory.resolve().name!r}), {seed})"
    plan = BuildPlan("search demo", directory, arguments, ["python", "-c", f"{imports}; {call}"])
    built = build_data_set(plan, lambda: _data_set(world, seed)).built
    corpus, text = directory / CORPUS, corpus_text(world)
    # A corpus that is as it should be keeps its time, by which its index knows it.
    if not corpus.is_file() or corpus.read_bytes() != text.encode():
        write_text(corpus, text)
    return built


def _data_set(world: World, seed: int) -> DataSet:
    rng = random.Random(f"questions/{seed}")
    people = rng.sample([*world.people], TRAIN + TEST)
    questions = [
        world.questions(name)[2] if number % 2 else rng.choice(world.questions(name)[:2])
        for number, name in enumerate(people)
    ]
    # Test first: another number of train questions would leave the test set as it is.
    splits = {"test": questions[:TEST], "train": questions[TEST:]}
    arrow = schema.arrow_schema(
        [pa.field("searches", pa.int64())],
        pa.struct([("target", pa.list_(pa.string()))]),
        [pa.field("agent_name", pa.string())],
    )
    files = [
        DataFile(f"{split}.parquet", [_row(q, index, split) for index, q in enumerate(splits[split])], arrow)
        for split in splits
    ]
    return DataSet(files, {split: Counts(len(splits[split]), len(splits[split])) for split in splits})


def _row(question: Question, index: int, split: str) -> dict:
    return schema.build_row(
        data_source=DATA_SOURCE,
        prompt=prompt_messages(question),
        ability="fact-reasoning",
        ground_truth={"target": [question.answer]},
        index=index,
        split=split,
        extra_info={"searches": len(question.path)},
        columns={"agent_name": AGENT_NAME},
    )
