"""Find the trainers of veRL beside ``main_ppo``, by the program that starts them."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.common.foreign import read_foreign

# By folder in veRL, the names that the table of keys has for them.
_NAMES = {"one_step_off_policy": "one_step", "fully_async_policy": "fully_async"}


@dataclass(frozen=True)
class OtherTrainer:
    """A trainer of veRL beside ``main_ppo``: its module, and the folder and name of its configuration."""

    module: str
    folder: Path
    config: str

    @property
    def name(self) -> str:
        """Return its name in the table of keys; "" for one that is not there, of which the keys alone can be checked."""
        return _NAMES.get(self.folder.parent.name, "")

    @cached_property
    def settings(self) -> DictConfig:
        """Return what its configuration sets beside veRL's ``ppo_trainer``."""
        own: Any = OmegaConf.create(read_foreign(self.folder / f"{self.config}.yaml").decode())
        return OmegaConf.masked_copy(own, [name for name in own if name not in ("defaults", "hydra")])


def other_trainer(module: str) -> OtherTrainer | None:
    """Return the trainer of veRL that a module is, or was before veRL took its recipe over; None for any other."""
    for name in (module, re.sub(r"^recipe\.", "verl.experimental.", module)):
        file = verl_directory().parent / f"{name.replace('.', '/')}.py"
        if not name.startswith("verl.") or not file.is_file():
            continue
        found = re.search(r'@hydra\.main\(config_path="([\w/]+)", config_name="(\w+)"', read_foreign(file).decode())
        config = file.parent / found[1] / f"{found[2]}.yaml" if found else file
        if found and re.search(r"^ +- ppo_\w*trainer$", read_foreign(config).decode(), re.MULTILINE):
            return OtherTrainer(name, config.parent, config.stem)
    return None


def verl_directory() -> Path:
    """Return the directory of the installed veRL, without an import of it.

    Raises:
        InvalidInputError: veRL is not installed.
    """
    found = importlib.util.find_spec("verl")
    if found is None or not found.submodule_search_locations:
        raise InvalidInputError(['veRL is not installed; pip install "verl>=0.9.1,<0.10"'])
    return Path(found.submodule_search_locations[0])
