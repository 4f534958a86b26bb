"""The six sets, and where their rows come from: the Hugging Face hub, a directory, or a file.

The places on the hub have been read from local copies of their layout only. What is known of them:

| set | rows | columns | known from |
|---|---|---|---|
| deepscaler | 40,315 | problem, answer, solution | the repository's pages; six rows have no answer (its discussion 4) |
| aime2024 | 30 | problem, answer (text) | the repository's pages, programs that load it |
| amc2023 | 83 | problem, answer (float) | the repository's pages, DeepScaleR's amc.json, made from it |
| math500 | 500 | problem, answer, subject, level | the repository's pages, programs that load it |
| minerva | 272 | question, answer | the repository's pages, programs that load it |
| olympiad_bench | 674 | question, final_answer (list), subfield | programs that load it; DeepScaleR's file has 675 rows |

The commits were seen as those of the repositories. Not seen: that olympiad_bench has its configuration at that commit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_trgrpo.data.sources import FILE_TYPES, Record, find_files, load_hub, read_records


@dataclass(frozen=True)
class HubData:
    """Rows on the hub: repository, commit, split, configuration."""

    dataset: str
    revision: str
    split: str
    configuration: str | None = None


TRAIN = "deepscaler"

# By name, which is also the `data_source`: the name in DeepScaleR's files, and the place on the hub.
_SETS = {
    TRAIN: (
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
SETS = tuple(_SETS)


def read_set(place: Path | HubData) -> Iterator[Record]:
    """Return the rows of a file or on the hub; see `read_records` and `load_hub`."""
    if isinstance(place, Path):
        return read_records(place)
    return load_hub(place.dataset, place.revision, place.split, place.configuration)


def find_sources(source: str) -> dict[str, Path | HubData]:
    """Return where each set that `source` has is: "hf" has all six, a directory those it has files of, a file one.

    A file is of the set that has a file of its name, otherwise of the train set.

    Raises ValueError where there are none, or two files of one set.
    """
    if source == "hf":
        return {name: hub for name, (_, hub) in _SETS.items()}
    path = Path(source)
    known = {raw: name for name, (raw, _) in _SETS.items()}
    found: dict[str, Path | HubData] = {}
    for file in find_files(path):
        stem = next(file.name.removesuffix(end) for end in FILE_TYPES if file.name.endswith(end))
        name = known.get(stem, "" if path.is_dir() else TRAIN)
        if name in found:
            raise ValueError(f"{path} has two files named {stem}; keep one of them")
        if name:
            found[name] = file
    if not found:
        raise ValueError(f"{path} has none of the sets; expected files named {', '.join(known)}, such as {TRAIN}.json")
    return {name: found[name] for name in SETS if name in found}
