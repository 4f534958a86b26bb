"""Where questions come from: the FlashRAG collection on the Hugging Face hub, or files in its layout.

A source holds splits of sets, for example the split ``dev`` of ``hotpotqa``. A row has a `question`, its
`golden_answers` and perhaps an `id`; other fields, such as `metadata`, whose type differs between the sets, are not read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from verl_trgrpo.common.problems import shorten
from verl_trgrpo.data.schema import CHAT_TAGS
from verl_trgrpo.data.sources import FILE_TYPES, MAX_REPORTED, Record, RowErrors, load_hub, read_records

# The sets that Search-R1 reports and veRL's reward router knows, in Search-R1's order.
SETS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
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


@dataclass(frozen=True)
class Part:
    """One split of one set, in a file or, without `path`, on the hub."""

    set_name: str
    split: str
    path: Path | None = None
    dataset: str = HUB_DATASET
    revision: str = HUB_REVISION

    @property
    def label(self) -> str:
        """Return ``set/split``."""
        return f"{self.set_name}/{self.split}"


@dataclass(frozen=True)
class Question:
    """One question, which ends with a question mark, and the texts that each answer it.

    set_name: one of `SETS`. origin: ``set/split#id``, with the row's number where it has no id.
    """

    set_name: str
    text: str
    answers: tuple[str, ...]
    origin: str


def local_parts(source: Path) -> dict[tuple[str, str], Part]:
    """Return the parts in a file or directory by set and split.

    A file's set and split are read from its path: ``nq/train.jsonl`` or ``nq_train.jsonl``, of any known type.

    Raises ValueError where nothing is found or two files hold the same part.
    """
    path = source.absolute()
    if not path.exists():
        raise ValueError(f"{source} does not exist; check the path")
    files = (
        [path] if path.is_file() else sorted(file for file in (*path.iterdir(), *path.glob("*/*")) if file.is_file())
    )
    parts: dict[tuple[str, str], Part] = {}
    for file in files:
        for key in _keys(file):
            if key in parts:
                raise ValueError(f"{parts[key].path} and {file} hold the same split of the same set; keep one of them")
            parts[key] = Part(*key, path=file)
    if not parts:
        raise ValueError(
            f"{source} has no questions; expected files such as nq/train.jsonl or nq_train.jsonl, with a set of "
            f"{', '.join(SETS)}, a split of {', '.join(SPLITS)} and a name that ends with {', '.join(FILE_TYPES)}"
        )
    return parts


def hub_parts(dataset: str, revision: str) -> dict[tuple[str, str], Part]:
    """Return the parts on the hub, or in a directory with a copy of the repository, by set and split."""
    return {
        (name, split): Part(name, split, None, dataset, revision)
        for name, splits in HUB_SPLITS.items()
        for split in splits
    }


def train_part(parts: Mapping[tuple[str, str], Part], name: str) -> Part | None:
    """Return the train split of a set, or None where there is none."""
    return parts.get((name, "train"))


def test_part(parts: Mapping[tuple[str, str], Part], name: str, trained_on: bool) -> Part | None:
    """Return the split to test on: test, else dev, else train, but never the one that is trained on; or None."""
    splits = ("test", "dev") if trained_on else ("test", "dev", "train")
    return next((parts[name, split] for split in splits if (name, split) in parts), None)


def read_part(part: Part, skip: bool = False) -> tuple[list[Question], list[str]]:
    """Return the questions of a part and what is wrong with its malformed rows.

    Unless these are to be skipped, reading ends when there are more of them than are shown.

    Raises ValueError where the part as a whole cannot be read.
    """
    errors = RowErrors(skip=True)
    questions = []
    for record in _records(part, errors):
        try:
            questions.append(_read_question(record, part))
        except ValueError as error:
            errors.add(record.where, record.number, str(error))
        if not skip and len(errors.problems) > MAX_REPORTED:
            break
    in_folder = part.path is not None and part.path.parent.name == part.set_name
    return questions, [f"{part.set_name}/{problem}" if in_folder else problem for problem in errors.problems]


def _keys(file: Path) -> Iterator[tuple[str, str]]:
    stems = [file.name.removesuffix(end) for end in FILE_TYPES if file.name.endswith(end)]
    for name, split in product(SETS, SPLITS):
        if f"{name}_{split}" in stems or (file.parent.name == name and split in stems):
            yield name, split


def _records(part: Part, errors: RowErrors) -> Iterator[Record]:
    if part.path is not None:
        return read_records(part.path, errors)
    # Without the file's name the library would fetch all splits of the set.
    file = {part.split: f"{part.label}.jsonl"}
    return load_hub(part.dataset, part.revision, part.split, part.set_name, file)


def _read_question(record: Record, part: Part) -> Question:
    """Return the question of one row; ValueError says what is wrong with it."""
    text, answers = record.row.get("question"), record.row.get("golden_answers")
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"question is {shorten(text)}; expected a text")
    if tags := [tag for tag in CHAT_TAGS if tag in text]:
        raise ValueError(f"the question contains {', '.join(tags)}, which belongs to chat templates")
    if isinstance(answers, str):
        answers = [answers]
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise ValueError(f"golden_answers is {shorten(answers)}; expected a list of texts")
    answers = tuple(dict.fromkeys(answer for answer in answers if answer.strip()))
    if not answers:
        raise ValueError("golden_answers has no text that is not blank")
    identity = record.row.get("id")
    text = text.strip()
    origin = f"{part.label}#{record.number if identity in (None, '') else identity}"
    return Question(part.set_name, text if text.endswith("?") else text + "?", answers, origin)
