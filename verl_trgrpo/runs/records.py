"""The JSON files of a run directory: ``run.json``, and the options of the single-file trainer."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from verl_trgrpo.common.files import write_json
from verl_trgrpo.common.foreign import ForeignFileError
from verl_trgrpo.common.typed import Read, Schema, Text, Whole, read_typed

RECORD_FILE = "run.json"
OPTIONS_FILE = "options.json"

logger = logging.getLogger(__name__)


class StudyRecord(Schema):
    """What of a study decides how its runs are compared."""

    baseline: Text | None = None
    primary: Text | None = None
    margin: Annotated[float, Field(allow_inf_nan=False)] | None = None


class RunRecord(Schema):
    """``run.json``: what a run is, where it comes from, and how far it came."""

    algorithm: Text | None = None
    arm: Text | None = None
    seed: Whole | None = None
    study: StudyRecord = StudyRecord()
    settings: dict[Text, Any] = Field(default_factory=dict)
    command: list[Text] | None = None
    data: dict[Text, Text] | None = None
    finished: bool | None = None
    commit: Text | None = None
    machine: Text | None = None
    versions: dict[Text, Text | None] = Field(default_factory=dict)
    # The length that a training was asked for which reached its end, the last step of any, and what its data files were.
    trained_for: dict[Text, Any] | None = None
    last_step: Whole | None = None
    data_files: dict[Text, Text] = Field(default_factory=dict)


class OptionsRecord(Schema):
    """``options.json``: options of the single-file trainer."""

    seed: Whole | None = None
    model: Text = ""
    train: Text = ""
    test: Text = ""


class ConfigKeys(Schema):
    """The keys of a recorded ``config.yaml`` whose values are not only shown or compared."""

    base_model: Text | None = Field(None, alias="actor_rollout_ref.model.path")
    shaping: dict[Text, Any] | None = Field(None, alias="actor_rollout_ref.actor.policy_loss.shaping")
    train_files: Text | list[Text] | None = Field(None, alias="data.train_files")
    val_files: Text | list[Text] | None = Field(None, alias="data.val_files")


def read_record(run_dir: Path, needed: bool = True) -> RunRecord:
    """Return ``run.json``, without fields where it does not exist.

    Raises:
        ForeignFileError: it is damaged; one that is not `needed` counts as not there, with a warning.
    """
    return _read(run_dir / RECORD_FILE, RunRecord, needed)


def read_trainer_options(run_dir: Path, needed: bool = True) -> OptionsRecord:
    """Return ``options.json`` as `read_record` does ``run.json``."""
    return _read(run_dir / OPTIONS_FILE, OptionsRecord, needed)


def _read(path: Path, schema: type[Read], needed: bool) -> Read:
    try:
        return read_typed(path, schema)
    except ForeignFileError as error:
        if needed:
            raise
        logger.warning("%s; it counts as not there", error)
        return schema()


def write_record(run_dir: Path, record: dict[str, Any]) -> None:
    """Write ``run.json`` atomically."""
    run_dir.mkdir(parents=True, exist_ok=True)
    write_json(run_dir / RECORD_FILE, record)
