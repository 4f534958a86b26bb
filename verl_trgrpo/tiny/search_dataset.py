"""What the search demonstration trains on: questions as veRL parquet, the world's documents and their index."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa

from verl_trgrpo.common.files import write_text
from verl_trgrpo.data import schema
from verl_trgrpo.data.build import Counts, DataFile, DataSet, build_data_set
from verl_trgrpo.retrieval.build import IndexOptions, build_index
from verl_trgrpo.tiny.search import prompt_messages
from verl_trgrpo.tiny.search_world import World, corpus_text, make_world

# People asked about; one question each, half of them with two searches. No person is in both splits.
TRAIN, TEST = 768, 192

AGENT_NAME = "trgrpo_search"
CORPUS = "corpus.jsonl"


def prepare(directory: Path, seed: int) -> bool:
    """Write data, corpus and index below `directory`, or find them there; return whether the data were built.

    ``data`` receives ``train.parquet``, ``test.parquet``, a manifest and ``corpus.jsonl``; ``index`` an index of the corpus.
    Equal seeds give equal files. The world shares no name with those of the warm start.

    Raises:
        ValueError: when the directory cannot be written, or has files of unknown origin.
    """
    world = make_world("training", seed)
    arguments = {"train": TRAIN, "test": TEST, "seed": seed}
    command = ["verl-trgrpo", "search", "demo"]
    result = build_data_set(
        "search demo", directory / "data", arguments, lambda: _data_set(world, seed), command=command
    )
    built = result.built
    corpus = directory / "data" / CORPUS
    if built or not corpus.exists():
        write_text(corpus, corpus_text(world))
    build_index(IndexOptions(corpus=corpus, out=directory / "index", force=built))
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
    files = []
    for split, asked in splits.items():
        rows = [
            schema.build_row(
                data_source="search_qa",
                prompt=prompt_messages(question),
                ability="fact-reasoning",
                ground_truth={"target": [question.answer]},
                index=index,
                split=split,
                extra_info={"searches": len(question.path)},
                columns={"agent_name": AGENT_NAME},
            )
            for index, question in enumerate(asked)
        ]
        files.append(DataFile(f"{split}.parquet", rows, arrow))
    return DataSet(files, {split: Counts(len(asked), len(asked)) for split, asked in splits.items()})
