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

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl_trgrpo.data import parquet
from verl_trgrpo.data.sources import (
    FILE_TYPES,
    Record,
    RowErrors,
    directory_sha256,
    find_file,
    find_files,
    hub_copy,
    hub_name,
    load_hub,
    read_records,
    visible_files,
)


@dataclass(frozen=True)
class HubData:
    """Rows on the hub: repository (or a directory with a copy of one), commit, branch or tag, split, configuration."""

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

_OVERRIDE = re.compile(
    r"(?P<name>[^=]+)=(?P<dataset>[^@:]+)?(?:@(?P<revision>[^:]+))?(?::(?:(?P<configuration>[^/]+)/)?(?P<split>[^/]+))?"
)


def split_of(name: str) -> str:
    """Return "train" or "test"."""
    return "train" if name == TRAIN else "test"


def file_of(name: str) -> str:
    """Return the name of the parquet file that a set becomes."""
    return "train.parquet" if name == TRAIN else f"{name}.parquet"


@dataclass(frozen=True)
class SetSource:
    """Where one set is: a file, or rows on the hub (or in a directory with a copy of a hub repository)."""

    place: Path | HubData

    def files(self) -> list[Path]:
        """Return the local files that are read."""
        if isinstance(self.place, Path):
            return [self.place]
        copy = hub_copy(self.place.dataset)
        return visible_files(copy) if copy else []

    def identity(self) -> dict[str, Any]:
        """Return what determines the rows, for the manifest: commit or sha256, never a path."""
        if isinstance(self.place, Path):
            return {"name": self.place.name, "sha256": parquet.file_sha256(self.place)}
        hub = self.place
        label = "/".join(part for part in (hub_name(hub.dataset), hub.configuration, hub.split) if part)
        copy = hub_copy(hub.dataset)
        if copy:
            return {"copy": label, "sha256": directory_sha256(copy)}
        return {"dataset": label, "revision": hub.revision}

    def records(self, errors: RowErrors) -> Iterator[Record]:
        """Return the rows; see `read_records` and `load_hub`."""
        if isinstance(self.place, Path):
            return read_records(self.place, errors)
        hub = self.place
        return load_hub(hub.dataset, hub.revision, hub.split, hub.configuration)


def find_sources(source: str, overrides: Iterable[str] = ()) -> dict[str, SetSource]:
    """Return the sets that `source` has: "hf" all six, a directory those it has files of, a file one.

    A file is of the set that has a file of its name, otherwise of the train set.

    Args:
        source: "hf", a directory or a file.
        overrides: with "hf", see `hub_data`.

    Raises ValueError where there are none.
    """
    if source == "hf":
        return {name: SetSource(place) for name, place in hub_data(overrides).items()}
    # DeepScaleR's raw files, its prepared ones, and those that are built here.
    known = {
        name: (raw, f"{raw}_{split_of(name)}", file_of(name).removesuffix(".parquet"))
        for name, (raw, _) in _SETS.items()
    }
    path = Path(source)
    if not path.is_dir():
        (file,) = find_files(path)
        stem = next(path.name.removesuffix(end) for end in FILE_TYPES if path.name.endswith(end))
        return {next((name for name in known if stem in known[name]), TRAIN): SetSource(file)}
    files = {name: find_file(path, dict.fromkeys(names)) for name, names in known.items()}
    found = {name: SetSource(file) for name, file in files.items() if file}
    if not found:
        names = ", ".join(raw for raw, _ in _SETS.values())
        raise ValueError(f"{path} has none of the sets; expected files named {names}, such as {TRAIN}.json")
    return found


def hub_data(overrides: Iterable[str]) -> dict[str, HubData]:
    """Return where each set is on the hub.

    Args:
        overrides: ``NAME=[REPO][@REVISION][:[CONFIGURATION/]SPLIT]``. What is left out stays, except that another
            repository is read from its branch main.

    Raises:
        ValueError: one of another form, for an unknown set, or for a set that has one already.
    """
    found = {name: hub for name, (_, hub) in _SETS.items()}
    seen = set()
    for text in overrides:
        match = _OVERRIDE.fullmatch(text)
        given = {key: value for key, value in match.groupdict().items() if value} if match else {}
        name = given.pop("name", None)
        if not given:
            raise ValueError(f"hf_dataset is {text!r}; write NAME=[REPO][@REVISION][:[CONFIGURATION/]SPLIT]")
        if name not in found or name in seen:
            reason = "is given twice" if name in seen else f"is no set; choose from {', '.join(SETS)}"
            raise ValueError(f"hf_dataset is {text!r}, but {name} {reason}")
        seen.add(name)
        if given.get("dataset", found[name].dataset) != found[name].dataset:
            given.setdefault("revision", "main")
        found[name] = replace(found[name], **given)
    return found
