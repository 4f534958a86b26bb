"""Open the data files of a run as veRL does, and what renders their prompts, each once for all checks."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.checks.files import (
    DATA,
    TOKENIZER,
    TRAINING,
    data_files,
    local_data_files,
    own_data_set,
)
from verl_trgrpo.data.prompts import RolloutPrompts, default_agent_of
from verl_trgrpo.data.rows import UnreadableError
from verl_trgrpo.data.verl_files import DataFile, open_as_verl
from verl_trgrpo.runs.compose import selected
from verl_trgrpo.runs.keys import MODEL_PATH


class RunData:
    """Data files of a run, and its settings by dotted key.

    A file is opened when it is first asked for, which takes a second for the import of `datasets`.

    Args:
        config: of the run.
    """

    def __init__(self, config: DictConfig) -> None:
        self.config = config
        self._opened: dict[Path, DataFile | UnreadableError] = {}

    def __getitem__(self, key: str) -> Any:
        """Return the value of a dotted key of the configuration; None where it does not exist or has none."""
        return selected(self.config, key)

    def files(self, key: str) -> dict[Path, DataFile]:
        """Return the files under ``data.train_files`` or ``data.val_files`` that veRL can open here."""
        return {path: file for path, file in self._found(key).items() if isinstance(file, DataFile)}

    def unreadable(self, key: str) -> list[UnreadableError]:
        """Return the reasons why veRL cannot open other existing files under a key."""
        return [file for file in self._found(key).values() if isinstance(file, UnreadableError)]

    def complete(self, *keys: str) -> bool:
        """Return True if every file under the keys is on this machine and can be opened."""
        return all(
            files and len(self.files(key)) == len(files) for key in keys for files in [data_files(self.config, key)]
        )

    @property
    def training_rows(self) -> int | None:
        """Return the rows of the training files before veRL's filter; None where they are not known."""
        if not self.complete(TRAINING):
            return None
        rows = sum(file.rows for file in self.files(TRAINING).values())
        limit = selected(self.config, "data.train_max_samples") or -1
        return min(rows, limit) if limit > 0 else rows

    @cached_property
    def agents(self) -> frozenset[str]:
        """Return the names of the agent loops that make responses: those of the rows that can be read, and the default.

        The default is that of files under a key of which none has the column agent_name, and of files that are not known.
        """
        names: set[str | None] = set()
        for key in DATA:
            files = self.files(key).values()
            named = [file for file in files if "agent_name" in file.schema.names]
            if not named or not self.complete(key):
                names.add(default_agent_of(self.config))
            for file in named:
                with suppress(UnreadableError):  # reported by the check of rows
                    names.update(
                        name for part in file.tables(["agent_name"]) for name in part["agent_name"].unique().to_pylist()
                    )
        return frozenset(name for name in names if name)

    @cached_property
    def prompts(self) -> RolloutPrompts | str:
        """Return what renders the prompts, or why they are not compared: it takes a second to load a large tokenizer."""
        tokenizer = Path(str(selected(self.config, TOKENIZER) or selected(self.config, MODEL_PATH))).expanduser()
        if not any(self.files(key) for key in DATA) or not tokenizer.is_dir():
            return "that needs data and a tokenizer on this machine"
        if own := own_data_set(self.config):
            return f"{own} reads the files"
        try:
            return RolloutPrompts(self.config)
        except ValueError as error:
            return str(error)

    def may_use(self, loop: str) -> bool:
        """Return False if no response comes from an agent loop."""
        return loop in self.agents or not self.complete(*DATA)

    def _found(self, key: str) -> dict[Path, DataFile | UnreadableError]:
        paths = [path for path in local_data_files(self.config, key) if path.is_file()]
        for path in paths:
            if path not in self._opened:
                try:
                    self._opened[path] = open_as_verl(path)
                except UnreadableError as error:
                    self._opened[path] = error
        return {path: self._opened[path] for path in paths}
