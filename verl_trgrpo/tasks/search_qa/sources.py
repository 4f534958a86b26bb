"""Where questions come from: the FlashRAG collection on the Hugging Face hub, or files in its layout.

A source holds splits of sets, for example the split ``dev`` of ``hotpotqa``. A row has a `question`, its
`golden_answers` and perhaps an `id`; other fields, such as `metadata`, whose type differs between the sets, are not read.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, get_args

from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.schema import CHAT_TAGS
from verl_trgrpo.data.sources import FILE_TYPES, Record, load_hub, parse_records, read_records

# The sets that Search-R1 reports and veRL's reward router knows, in Search-R1's order.
SetName = Literal["nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"]
SETS: tuple[SetName, ...] = get_args(SetName)
SPLITS = ("train", "dev", "test")

HUB_DATASET = "RUC-NLPIR/FlashRAG_datasets"

# A commit known when this was written; it could not be loaded then.
HUB_REVISION = "d3adb4a4eb0c1424b404b65c69818a84b50476e6"

# The splits that it has, each in a file such as nq/train.jsonl.
HUB_SPLITS = {
    "nq": ("train", "dev", "test"),
    "triviaqa": ("train", "dev", "test"),
    "popqa": ("test",),
    "hotpotqa": ("train", "dev"),
    "2wikimultihopqa": ("train", "dev"),
    "musique": ("train", "dev"),
    "bamboogle": ("test",),
}

# By set and split: the file, or None for one on the hub.
Parts = dict[tuple[str, str], Path | None]


@dataclass(frozen=True)
class Question:
    """One question, which ends with a question mark, and the texts that each answer it.

    Args:
        set_name: one of `SETS`.
        text: the question.
        answers: one or more, without repetitions.
        origin: ``set/split#id``, with the row's number where it has no id.
    """

    set_name: str
    text: str
    answers: tuple[str, ...]
    origin: str


def local_parts(source: Path) -> Parts:
    """Return the parts in a directory, in files such as ``nq/train.jsonl`` of any known type.

    Raises ValueError where there are none, or two files of one part.
    """
    parts: Parts = {}
    for name, split in product(SETS, SPLITS):
        files = [source / name / f"{split}{ending}" for ending in FILE_TYPES]
        found = [file for file in files if file.is_file()]
        if len(found) > 1:
            raise ValueError(f"{found[0]} and {found[1]} hold the same split; keep one of them")
        if found:
            parts[name, split] = found[0]
    if not parts:
        raise ValueError(f"{source} has no questions; expected a directory with files such as nq/train.jsonl")
    return parts


def read_part(name: str, split: str, path: Path | None) -> list[Question]:
    """Return the questions of one of the `SPLITS` of a set, from its file, or None to load it from the hub.

    Raises ValueError for a malformed row, and where the part as a whole cannot be read.
    """
    if path is None:
        # Without the file's name the library would fetch all splits of the set.
        records = load_hub(HUB_DATASET, HUB_REVISION, split, name, {split: f"{name}/{split}.jsonl"})
    else:
        records = read_records(path, f"{name}/{split}")
    return list(parse_records(records, lambda record: _read_question(record, name, split)))


def _read_question(record: Record, name: str, split: str) -> Question:
    """Return the question of one row; ValueError says what is wrong with it."""
    text, answers = record.row.get("question"), record.row.get("golden_answers")
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"question is {shorten(text)}; expected a text")
    if tags := [tag for tag in CHAT_TAGS if tag in text]:
        raise ValueError(f"the question contains {', '.join(tags)}, which belongs to chat templates")
    answers = [answers] if isinstance(answers, str) else answers
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise ValueError(f"golden_answers is {shorten(answers)}; expected a list of texts")
    answers = tuple(dict.fromkeys(answer for answer in answers if answer.strip()))
    if not answers:
        raise ValueError("golden_answers has no text that is not blank")
    identity = record.row.get("id")
    origin = f"{name}/{split}#{record.number if identity in (None, '') else identity}"
    return Question(name, text.strip().removesuffix("?") + "?", answers, origin)
