"""Build DeepScaleR's train set and test sets for veRL: a Parquet file for each and ``manifest.json``.

The rows come from the Hugging Face hub, a directory, or a file. The places on the hub have been read from local copies of
their layout only. This is known about them:

| set | rows | columns | known from |
|---|---|---|---|
| deepscaler | 40,315 | problem, answer, solution | the repository's pages; six rows have no answer (its discussion 4) |
| aime2024 | 30 | problem, answer (text) | the repository's pages, programs that load it |
| amc2023 | 83 | problem, answer (float) | the repository's pages, DeepScaleR's amc.json, made from it |
| math500 | 500 | problem, answer, subject, level | the repository's pages, programs that load it |
| minerva | 272 | question, answer | the repository's pages, programs that load it |
| olympiad_bench | 674 | question, final_answer (list), subfield | programs that load it; DeepScaleR's file has 675 rows |

The repositories have these commits. It is not known if olympiad_bench has its configuration at that commit.
"""

import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from verl_trgrpo.common.findings import findings_of
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.rows import CHAT_TAGS, arrow_schema, build_row
from verl_trgrpo.data.sources import (
    FILE_TYPES,
    NOT_DRAWN,
    Record,
    data_entries,
    draw,
    find_files,
    load_hub,
    parse_records,
    read_records,
    warn_of_test_files,
)
from verl_trgrpo.data.write import BuilderOptions, counts
from verl_trgrpo.tasks.math.equality import equal_answers, is_rounded
from verl_trgrpo.tasks.math.reward import gold_text, is_number
from verl_trgrpo.tasks.registry import refused_spelling

if TYPE_CHECKING:
    import pyarrow as pa

# Reasons for dropping rows, in the manifest.
REPEATED = "repeats a problem with the same answer"
CONTRADICTED = "the same problem with another answer"
WITHOUT_ANSWER = "the row has no answer"

BOXED_INSTRUCTION = r"Let's think step by step and output the final answer within \boxed{}."
"""The instruction that DeepScaleR's models were trained and tested with, appended to each problem after one space
(github.com/agentica-project/rllm, commit 874daa4acb7f, scripts/data/deepscaler_dataset.py)."""


@dataclass(frozen=True)
class HubData:
    """Place of a set on the hub."""

    dataset: str
    revision: str
    split: str
    configuration: str | None = None


_TRAIN = "deepscaler"

# Text that a question refers to, where it has a column of its own.
_ABOVE = ("context", "passage", "body")
_GSM8K_ANSWER = re.compile(r"(?:^|\n)####[ \t]*([^\n]*\S)\s*$")  # #### 72

logger = logging.getLogger(__name__)

# Problems of each test set. A file with more is another one, such as train problems from earlier years.
_SIZES = {"aime2024": 30, "amc2023": 83, "math500": 500, "minerva": 272, "olympiad_bench": 675}

# By name, which is also the `data_source`: the name in DeepScaleR's files, and the place on the hub.
_SETS = {
    _TRAIN: (
        "deepscaler",
        HubData("agentica-org/DeepScaleR-Preview-Dataset", "b6ae8c60f5c1f2b594e2140b91c49c9ad0949e29", "train"),
    ),
    "aime2024": ("aime", HubData("HuggingFaceH4/aime_2024", "2fe88a2f1091d5048c0f36abc874fb997b3dd99a", "train")),
    "amc2023": ("amc", HubData("AI-MO/aimo-validation-amc", "8ef249608d65c2de7763ca7525f438e540ba285e", "train")),
    "math500": ("math", HubData("HuggingFaceH4/MATH-500", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be", "test")),
    "minerva": ("minerva", HubData("math-ai/minervamath", "ee46ddc498933b1977577953250ca5c66be64f96", "test")),
    "olympiad_bench": (
        "olympiad_bench",
        HubData("Hothan/OlympiadBench", "3b426ee1d587c71b495146dde9f3e995ee7ac59f", "train", "OE_TO_maths_en_COMP"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class DeepscalerOptions(BuilderOptions):
    """Contents of a DeepScaleR data set.

    Args:
        source: hf (the Hugging Face hub), a directory with a file for each set, or one file: that of a test set if it has
            the name of one (aime.json) and is not in a directory named train, otherwise of train problems.
        sets: which to build, of deepscaler, aime2024, amc2023, math500, minerva and olympiad_bench; all of the source if
            left out.
        limit: at most this many rows per file, drawn with the seed; all if left out.
        instruction: appended to each problem; empty for none.
    """

    source: str = "hf"
    sets: tuple[str, ...] = ()
    limit: Annotated[int | None, "[1, inf)"] = None
    instruction: str = BOXED_INSTRUCTION

    def problems(self) -> list[str]:
        """Return a message if the source lacks a set."""
        return [finding.message for finding in findings_of(self.places, "")]

    def places(self) -> dict[str, Path | HubData]:
        """Return the places of the sets to build.

        Raises:
            ValueError: the source has none, or lacks one that is asked for.
        """
        available = find_sources(self.source)
        if missing := [name for name in self.sets if name not in available]:
            raise ValueError(f"{self.source} has no {', '.join(missing)}; choose sets from {', '.join(available)}")
        return {name: available[name] for name in _SETS if name in (self.sets or available)}


def build_deepscaler(options: DeepscalerOptions, progress: Progress = no_progress) -> dict[str, Any] | None:
    """Write DeepScaleR's train set and five test sets as Parquet files for veRL, with manifest.json.

    examples:
      verl-trgrpo data build deepscaler --out data/deepscaler                                  from the hub
      verl-trgrpo data build deepscaler --out data/deepscaler --source downloads/deepscaler    from a directory
      verl-trgrpo data build deepscaler --out data/probe --sets math500 minerva --limit 50 --instruction ''

    notes:
      Test sets are AIME 2024, AMC 2023, MATH-500, Minerva and OlympiadBench.
      All files have one schema. A ground truth is a list of strings of which any is right.
      Within a set, a problem that occurs again with the same answer is dropped; if the answers differ, all its copies
      are. Rows without an answer are dropped, too. All are counted.
      A source directory has deepscaler.json, aime.json, amc.json, math.json, minerva.json and olympiad_bench.json (or
      .jsonl, .jsonl.gz, .parquet, .arrow), not in a directory named train, or copies of the hub's repositories.
      The download was not run against the hub itself so far; if it fails, download the sets and give --source.

    Returns:
        the manifest, None if the data set is there already; see `DataSet`.

    Raises:
        ValueError: the source cannot be read, rows are malformed, or the directory cannot be written.
    """
    places = options.places()
    if options.source != "hf":
        _warn_of_left_out(Path(options.source))
    files = {name: place for name, place in places.items() if isinstance(place, Path)}
    warn_of_test_files([file for name, file in files.items() if name == _TRAIN])
    data_set = options.data_set(
        "deepscaler",
        "deepscaler",
        inputs=files,
        libraries=["datasets"] if options.source == "hf" else [],
        hub={name: asdict(place) for name, place in places.items() if isinstance(place, HubData)},
    )
    if data_set.is_there():
        return None
    splits, found = {}, {}
    for name, place in places.items():
        problems, found[name] = choose_problems(name, place, options, progress)
        splits["train" if name == _TRAIN else name] = [_row(each, name, options.instruction) for each in problems]
    return data_set.write(splits, math_schema(), found)


def choose_problems(
    name: str, place: Path | HubData, options: DeepscalerOptions, progress: Progress = no_progress
) -> tuple[list["Problem"], dict[str, Any]]:
    """Return the problems of a set that become rows, and the counts of its source."""
    read = list(parse_records(progress(_read_set(place), None, name), read_problem))
    problems = [problem for problem in read if problem.answers]
    repeated = find_repetitions(problems)
    rest = [problem for position, problem in enumerate(problems) if position not in repeated]
    if len(rest) > _SIZES.get(name, len(rest)):
        raise ValueError(
            f"{place}: {len(rest)} different problems, but {name} has {_SIZES[name]}; rename the file, or put this file alone "
            "into a directory named train if it is for training"
        )
    chosen = draw(rest, options.limit, f"deepscaler/{name}/{options.seed}")
    dropped = {reason: [*repeated.values()].count(reason) for reason in (REPEATED, CONTRADICTED)}
    dropped |= {WITHOUT_ANSWER: len(read) - len(problems), NOT_DRAWN: len(rest) - len(chosen)}
    warnings = [(each.origin, text) for each in chosen if (text := refused_spelling(name, each.answers))]
    for origin, text in warnings[:1]:
        logger.warning("%s: %s; in all %d such answers of %s", origin, text, len(warnings), name)
    return chosen, counts(len(chosen), dropped, len(warnings))


def _row(problem: "Problem", name: str, instruction: str) -> dict[str, Any]:
    return build_row(
        data_source=name,
        prompt=[{"role": "user", "content": f"{problem.text} {instruction}".strip()}],
        ability="math",
        ground_truth=problem.answers,
        extra_info={"question": problem.text, "origin": problem.origin, "rounded_gold": is_rounded(problem.answers)},
    )


def math_schema() -> "pa.Schema":
    """Return the Arrow schema of all sets; veRL concatenates only files of equal types."""
    import pyarrow as pa

    return arrow_schema(
        [pa.field("question", pa.string()), pa.field("origin", pa.string()), pa.field("rounded_gold", pa.bool_())],
        ground_truth=pa.list_(pa.string()),  # also if all rows have one answer
    )


def find_sources(source: str) -> dict[str, Path | HubData]:
    """Return the place of each set of `source`: "hf" has all six, a directory those with files in it, a file one.

    A file belongs to the set with its name or to that of the hub's data set in whose directory it is, otherwise to the train
    set. In a directory named train, or one below it, are train
    files only: what has the name of a test set there is left out of a directory, and has train problems if given alone.

    Raises:
        ValueError: there are none, or two files of one set.
    """
    if source == "hf":
        return {name: hub for name, (_, hub) in _SETS.items()}
    path = Path(source)
    known = {raw: name for name, (raw, _) in _SETS.items()}
    found: dict[str, Path | HubData] = {}
    for file in _files_of(path):
        stem = next(file.name.removesuffix(end) for end in FILE_TYPES if file.name.endswith(end))
        name = known.get(stem) or _hub_set(file) or ("" if path.is_dir() else _TRAIN)
        if name not in ("", _TRAIN) and _has_train_problems(file):
            name = "" if path.is_dir() else _TRAIN
        if name in found:
            raise ValueError(f"{found[name]} and {file} are both {name}; keep one of the two")
        if name:
            found[name] = file
    if not found:
        raise ValueError(
            f"{path} has none of the sets; expected files named {', '.join(known)}, such as {_TRAIN}.json, and test sets not "
            "in a directory named train; or give one file of train problems"
        )
    return {name: found[name] for name in _SETS if name in found}


def _files_of(path: Path) -> list[Path]:
    """Return the data files of a source: those of a directory, and those in directories of the hub's data sets in it."""
    hub = [place for _, place in _SETS.values()]
    names = [name for place in hub for name in (place.dataset, place.dataset.partition("/")[2], _cached(place))]
    below = [file for name in names if path.is_dir() for file in (path / name).rglob("*")]
    below = data_entries(file for file in below if _hub_set(file))
    return [*below, *data_entries(path.iterdir())] if below else find_files(path)


def _hub_set(file: Path) -> str:
    """Return the set of a file by the directories that it is in: of a data set on the hub, with its split and configuration."""
    for name, (_, place) in _SETS.items():
        inside = file.absolute().parts[-6:-1]
        words = re.findall("[A-Za-z0-9_]+", "/".join(file.parts[-2:]))
        other_split = {"train", "test", "validation"} & {*words} - {place.split}
        right = place.configuration in (None, *words) and (place.split in words or not other_split)
        if right and {place.dataset.partition("/")[2], _cached(place)} & {*inside}:
            return name
    return ""


def _cached(place: HubData) -> str:
    """Return the directory of a data set in the hub's cache."""
    return f"datasets--{place.dataset.replace('/', '--')}"


def _has_train_problems(file: Path) -> bool:
    """Return whether a file is in a directory named train, or in one below that, as in rllm's train/math."""
    return "train" in file.resolve().parts[-3:-1]


def _warn_of_left_out(path: Path) -> None:
    """Warn of files that `find_sources` does not take for the test sets whose names they have."""
    names = {raw for raw, _ in _SETS.values()} - {_TRAIN}
    files = _files_of(path) if path.is_dir() else []
    left_out = [file.name for file in files if _has_train_problems(file) and file.name.partition(".")[0] in names]
    if left_out:
        logger.warning("%s is a directory of train files; not used as test sets: %s", path, ", ".join(left_out))


def _read_set(place: Path | HubData) -> Iterator[Record]:
    if isinstance(place, Path):
        return read_records(place)
    return load_hub(place.dataset, place.revision, place.split, place.configuration)


@dataclass(frozen=True)
class Problem:
    """A problem, its acceptable answers (none if the row's is null or blank, as in some public data) and its origin."""

    text: str
    answers: list[str]
    origin: str = ""

    @property
    def key(self) -> str:
        """Return the text with each run of white space as one space; repetitions of a problem share it."""
        return " ".join(self.text.split())


def read_problem(record: Record) -> Problem:
    """Return the problem of a row with problem (or question, prompt) and answer (or final_answer).

    What the question is about may stand apart from it, as ASDiv's body, and comes first. A prompt may be a chat with one
    message. An answer of GSM8K is what follows the last ``####`` of the answer or solution.

    Raises:
        ValueError: the row is malformed.
    """
    row = record.row
    found = f"found {', '.join(row) or 'nothing'}"
    if not {"problem", "question", "prompt"} & {*row}:
        raise ValueError(f"missing column problem, question or prompt ({found})")
    if "answer" not in row and "final_answer" not in row and _last_line_answer(row.get("solution")) is None:
        raise ValueError(f"missing column answer or final_answer ({found})")
    problem = row.get("problem") or row.get("question") or _prompt_text(row.get("prompt"))
    if not isinstance(problem, str):
        raise ValueError(
            f"the problem is {shorten(problem)}; expected a string under problem, question or prompt ({found})"
        )
    above = [row[name].strip() for name in _ABOVE if isinstance(row.get(name), str)]
    text = " ".join(filter(None, [*above, problem.strip()]))
    if tags := [tag for tag in CHAT_TAGS if tag in text]:
        raise ValueError(f"the problem contains {', '.join(tags)}; the chat template adds its own tags")
    if not problem.strip():
        raise ValueError(f"the problem is {shorten(problem)}; it must not be empty")
    answer = row.get("final_answer") if row.get("answer") is None else row["answer"]
    if (stated := _last_line_answer(row.get("solution") if answer is None else answer)) is not None:
        answer = stated
    return Problem(text, read_answers(answer), record.origin)


def _prompt_text(prompt: Any) -> Any:
    """Return the content of a chat with one message, other values as they are."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], Mapping):
        return prompt[0].get("content", prompt[0].get("value"))
    return prompt


def _last_line_answer(solution: Any) -> str | None:
    """Return what a solution of GSM8K states after ``####`` in its last line, without commas in numbers; None if nothing."""
    match = _GSM8K_ANSWER.search(solution) if isinstance(solution, str) else None
    return match[1].replace(",", "") if match else None


def read_answers(value: Any) -> list[str]:
    r"""Return the acceptable answers of a row: strings without white space at their ends, each once.

    A string stays as it is, with its leading zeros, `$` and commands, which the reward understands. A number becomes its
    shortest decimal notation without an exponent. The entries of a list are alternatives and stay separate. Null, a blank
    string and an empty list have no answers.

    Raises:
        ValueError: anything else, NaN or infinity, or a string longer than the reward takes.

    >>> read_answers(142.0), read_answers("025\n"), read_answers([0.5, r"$\frac{1}{2}$"])
    (['142'], ['025'], ['0.5', '$\\frac{1}{2}$'])
    """
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        return []
    items = value if isinstance(value, list) else [value]
    texts = [gold_text(_number_text(item) if is_number(item) else item).strip() for item in items]
    return list(dict.fromkeys(texts))


def find_repetitions(problems: Sequence[Problem]) -> dict[int, str]:
    """Return the positions of the problems to drop, each with the reason.

    Problems are the same if they differ in white space only. If all copies have the first one's answer, the first stays. If
    one has another answer, none stays: it is unknown which answer is right, and a wrong ground truth punishes right
    responses.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for position, problem in enumerate(problems):
        groups[problem.key].append(position)
    dropped: dict[int, str] = {}
    for first, *others in groups.values():
        # Two answers agree if the reward takes one for the other, as far as it tells without comparing formulas.
        answers = problems[first].answers
        if all(
            any(equal_answers(answers, answer, lambda *_: False) for answer in problems[other].answers)
            for other in others
        ):
            dropped |= dict.fromkeys(others, REPEATED)
        else:
            dropped |= dict.fromkeys([first, *others], CONTRADICTED)
    return dropped


def _number_text(value: int | float) -> str:
    """Return a finite number as a plain decimal: 142.0 as "142", 1e23 as "1" and 23 zeros, 0.5 as "0.5"."""
    text = format(Decimal(repr(value)), "f")  # repr has the digits as written, the exact value has more
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
