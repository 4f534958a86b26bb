"""Where the rows of the sets come from: the hub, a directory, or a file."""

from collections.abc import Iterator
from dataclasses import dataclass
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
from verl_trgrpo.tasks.math.sets import SETS, TRAIN, HubData


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


def find_sources(source: str, hub: dict[str, HubData]) -> dict[str, SetSource]:
    """Return the sets that `source` has: "hf" all six, a directory those it has files of, a file one.

    A file is of the set that has a file of its name, otherwise of the train set.

    Raises ValueError where there are none.
    """
    if source == "hf":
        return {name: SetSource(place) for name, place in hub.items()}
    path = Path(source)
    if not path.is_dir():
        (file,) = find_files(path)
        stem = next(path.name.removesuffix(end) for end in FILE_TYPES if path.name.endswith(end))
        name = next((name for name, math_set in SETS.items() if stem in math_set.source_names), TRAIN)
        return {name: SetSource(file)}
    files = {name: find_file(path, math_set.source_names) for name, math_set in SETS.items()}
    found = {name: SetSource(file) for name, file in files.items() if file}
    if not found:
        names = ", ".join(math_set.source_names[0] for math_set in SETS.values())
        raise ValueError(f"{path} has none of the sets; expected files named {names}, such as {TRAIN}.json")
    return found
