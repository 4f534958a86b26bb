"""What is known of a run: settings, files, rows, agent loops, model. Each is found once, when a check first asks for it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.foreign import ForeignFileError
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.common.typed import read_typed
from verl_trgrpo.data.prompts import ModelConfig, RolloutPrompts, default_agent_of
from verl_trgrpo.data.questions.ask import open_data_file
from verl_trgrpo.data.rows import SINGLE_TURN, UnreadableFileError
from verl_trgrpo.data.verl_files import DataFile, matching_files
from verl_trgrpo.runs.compose import ComposedRun, changed_values, loggers_of
from verl_trgrpo.runs.keys import ACTOR, LOSS, MODEL, MODEL_PATH, REF, ROLLOUT, ULYSSES, selected
from verl_trgrpo.runs.readers import key_table
from verl_trgrpo.runs.run_directory import is_finished
from verl_trgrpo.verl_plugin.loss_names import VERLS_NAMES

if TYPE_CHECKING:
    from verl_trgrpo.memory.run import MemoryAnswer

TRAINING = "data.train_files"
DATA = (TRAINING, "data.val_files")
DATA_SET = "data.custom_cls.path"
CRITIC = "critic.model.path"
TOKENIZER = f"{MODEL}.tokenizer_path"
# This package's rewards, and veRL's reward managers, extended.
OWN_REWARDS = "pkg://verl_trgrpo.tasks"
OWN_MANAGER = "pkg://verl_trgrpo.tasks.reward_manager"


@dataclass(frozen=True)
class Split:
    """The keys of an engine that say how many GPUs share a response.

    Args:
        tokens: they share the tokens of a micro-batch, whose limit veRL multiplies by that number; of several keys the largest.
        heads: one of both; they share the attention heads.
        others: they share its layers, or the weights of each.
    """

    tokens: tuple[str, ...]
    heads: str
    others: tuple[str, ...] = ()


# By `actor.strategy`, as read in `forward_backward_batch` and `get_data_parallel_size` of veRL's engines.
SPLITS = {
    **dict.fromkeys(("fsdp", "fsdp2", "fsdp_turbo"), Split(ULYSSES, ULYSSES[0])),
    "veomni": Split((f"{ACTOR}.veomni.ulysses_parallel_size",), f"{ACTOR}.veomni.ulysses_parallel_size"),
    "megatron": Split(
        (f"{ACTOR}.megatron.context_parallel_size",),
        f"{ACTOR}.megatron.tensor_model_parallel_size",
        (f"{ACTOR}.megatron.tensor_model_parallel_size", f"{ACTOR}.megatron.pipeline_model_parallel_size"),
    ),
    "torchtitan": Split(
        (f"{ACTOR}.torchtitan.tensor_parallel_size",),
        f"{ACTOR}.torchtitan.tensor_parallel_size",
        (f"{ACTOR}.torchtitan.pipeline_parallel_size", f"{ACTOR}.torchtitan.context_parallel_size"),
    ),
}


def data_files(config: DictConfig, key: str) -> list[str]:
    """Return the files under ``key``, which holds one or a list; a pattern with a match stands for what it matches."""
    files = selected(config, key)
    return [
        each
        for file in (files if isinstance(files, ListConfig) else [files])
        if file
        for each in matching_files(str(file))
    ]


class RunView:
    """The run that is checked, with its settings by dotted key: ``view["actor_rollout_ref.rollout.n"]``.

    Args:
        run: as composed.
        need_files: missing data and models are errors; otherwise they are reported as "not checked".
        trains: this machine trains, so that what it lacks is an error.
        gpu_gb: GB of a card, as in its name; None for this machine's.
    """

    def __init__(
        self, run: ComposedRun, need_files: bool = True, trains: bool = False, gpu_gb: float | None = None
    ) -> None:
        self.gpu_gb = gpu_gb
        self.run, self.need_files, self.trains = run, need_files, trains
        self.config, self.choices = run.config, run.choices
        self._opened: dict[Path, DataFile | UnreadableFileError] = {}

    def __getitem__(self, key: str) -> Any:
        """Return the value of a dotted key of the configuration; None where it does not exist or has none."""
        return selected(self.config, key)

    @property
    def trainer_name(self) -> str:
        """Return the name that the table of keys has for the trainer of veRL that runs the configuration."""
        if self.run.trainer:
            return self.run.trainer.name
        return "v1" if self["trainer.use_v1"] else "older"

    @property
    def algorithm_name(self) -> str:
        """Return the word of ``algorithm=``; "" without one."""
        return self.choices.get("algorithm") or ""

    def ignores(self, key: str) -> bool:
        """Return True for a dotted key that the trainer never reads."""
        parts = key.split(".")
        return any(".".join(parts[:end]) in self._ignored for end in range(1, len(parts) + 1))

    @cached_property
    def _ignored(self) -> frozenset[str]:
        """Keys and sections that the trainer never reads."""
        unread: dict[str, list[str]] = key_table()["unread"]
        return frozenset(key for key, names in unread.items() if self.trainer_name in names)

    def compared(self, key: str) -> Any:
        """Return a setting as tables of checks compare it: a loss with token weights has the name of veRL's loss."""
        return VERLS_NAMES.get(str(self[key]), self[key]) if key == f"{LOSS}.loss_mode" else self[key]

    def finding(self, key: str, reason: str, level: Level = Level.ERROR) -> Finding:
        """Return a finding about a setting: its key and value, and the reason."""
        return Finding(level, key, f"{key}={as_plain_yaml(self[key])}: {reason}")

    @cached_property
    def resolved(self) -> Any:
        """Return the configuration in plain types; OmegaConf raises where a reference leads nowhere."""
        return OmegaConf.to_container(self.config, resolve=True, throw_on_missing=False)

    @property
    def defaults(self) -> DictConfig:
        """Return the configuration without the settings of the run."""
        return self.run.defaults

    @cached_property
    def changed(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults; see :func:`~verl_trgrpo.runs.compose.changed_values`."""
        return changed_values(self.config, self.defaults)

    @property
    def loggers(self) -> frozenset[str]:
        """Return the names of the loggers."""
        return frozenset(loggers_of(self.config))

    @property
    def needs_critic(self) -> bool:
        """Return what veRL's ``need_critic`` returns, without veRL."""
        enabled = self["critic.enable"]
        return self["algorithm.adv_estimator"] == "gae" if enabled is None else bool(enabled)

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of all nodes together."""
        return self.config.trainer.n_gpus_per_node * self.config.trainer.nnodes

    @property
    def split(self) -> Split | None:
        """Return how the engine of the actor splits a response over GPUs; None where that is not known here."""
        return SPLITS.get(str(self[f"{ACTOR}.strategy"]))

    @property
    def sequence_parallel(self) -> int:
        """Return the number of GPUs that share the tokens of a micro-batch."""
        return max((self[key] or 1 for key in self.split.tokens), default=1) if self.split else 1

    @property
    def model_parallel(self) -> int:
        """Return the number of GPUs that share a response: its tokens, its layers, or the weights of a layer."""
        sizes = [self[key] or 1 for key in self.split.others] if self.split else []
        return math.prod(sizes) * self.sequence_parallel

    @property
    def data_parallel(self) -> int:
        """Return the number of groups of GPUs that get different responses."""
        if self[f"{ACTOR}.megatron.dynamic_context_parallel"]:
            return 1
        return max(1, self.gpus // self.model_parallel)

    @property
    def longest(self) -> int:
        """Return the tokens of the longest prompt and response."""
        return self.config.data.max_prompt_length + self.config.data.max_response_length

    @cached_property
    def decoder(self) -> Mapping[str, int | None]:
        """Return the figures in the local model's ``config.json``, None for each that is not there.

        Models that also see or hear keep those of the decoder one level down.
        """
        config = ModelConfig()
        with suppress(ForeignFileError):  # reported by the check of the model
            config = read_typed(Path(str(self[MODEL_PATH])).expanduser() / "config.json", ModelConfig)
        figures = (config.text_config or {}) | config.content()
        return defaultdict(lambda: None, {name: value for name, value in figures.items() if isinstance(value, int)})

    @cached_property
    def memory(self) -> MemoryAnswer:
        """Return whether the run fits on its cards. Imports torch and transformers."""
        from verl_trgrpo.memory.run import MemoryAnswer, memory_answer

        if self.run.trainer:
            return MemoryAnswer(None, None, f"the rollout of {self.run.trainer.module} has GPUs of its own", "")
        return memory_answer(self.config, self.gpu_gb, self.has_reference, self.needs_critic)

    @property
    def data_set(self) -> str | None:
        """Return the file of the run's own data set class, which reads the data files in its own way; None without one."""
        path = self[DATA_SET]
        return str(path) if path else None

    def names(self, key: str) -> list[str]:
        """Return the files that ``data.train_files`` or ``data.val_files`` names."""
        return data_files(self.config, key)

    def local(self, key: str) -> list[Path]:
        """Return the files under a key that are not on remote storage."""
        return [Path(name).expanduser() for name in self.names(key) if "://" not in name]

    def files(self, key: str) -> dict[Path, DataFile]:
        """Return the files under a key that veRL can open here. The first call imports `datasets`, which takes a second."""
        return {path: file for path, file in self.opened(key).items() if isinstance(file, DataFile)}

    def complete(self, *keys: str) -> bool:
        """Return True if every file under the keys is on this machine and can be opened."""
        return all(names and len(self.files(key)) == len(names) for key in keys for names in [self.names(key)])

    @property
    def rows(self) -> int | None:
        """Return the rows of the training files before veRL's filter; None where they are not known."""
        if not self.complete(TRAINING):
            return None
        rows = sum(file.rows for file in self.files(TRAINING).values())
        limit = self["data.train_max_samples"] or -1
        return min(rows, limit) if limit > 0 else rows

    @property
    def steps_of_epochs(self) -> int | None:
        """Return the steps of all epochs; None where the rows are not known."""
        data, rows = self.config.data, self.rows
        if rows is None or not data.train_batch_size:  # the fully asynchronous trainer draws prompts one by one
            return None
        return rows // data.train_batch_size * self.config.trainer.total_epochs

    @property
    def steps(self) -> int | None:
        """Return the steps of the run, at most: those asked for or those of all epochs; None where neither is known."""
        asked = self.config.trainer.total_training_steps
        return min((steps for steps in (asked, self.steps_of_epochs) if steps is not None), default=None)

    @property
    def updates(self) -> int | None:
        """Return the steps of the learning rate: of each step one, or the updates until a separate rollout gets the weights."""
        between = self[f"trainer.v1.{self['trainer.v1.trainer_mode']}.parameter_sync_step"] or 1
        return None if self.steps is None else self.steps * between

    @property
    def finished(self) -> bool:
        """Return True if the run has all its steps, so that the same command has nothing left to train.

        Raises:
            ValueError: ``run.json`` is damaged.
        """
        return is_finished(self.config, self.run.directory, self.steps)

    @property
    def starts(self) -> bool:
        """Return True if this machine is about to train: the run has steps left."""
        try:
            return self.trains and not self.finished
        except ValueError:  # run.json is damaged; the check of what the run resumes from says so
            return self.trains

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
                with suppress(UnreadableFileError):  # reported by the check of rows
                    names.update(
                        name for part in file.tables(["agent_name"]) for name in part["agent_name"].unique().to_pylist()
                    )
        return frozenset(name for name in names if name)

    def may_use(self, agent: str) -> bool:
        """Return False if no response comes from an agent loop."""
        return agent in self.agents or not self.complete(*DATA)

    @property
    def has_reference(self) -> bool:
        """Return True if the run has a reference policy."""
        return bool(self[f"{ACTOR}.use_kl_loss"] or self["algorithm.use_kl_in_reward"])

    @property
    def size_of_reference(self) -> str:
        """Return the setting that a reference policy needs in addition, behind a space; "" if its micro-batches have a size."""
        names = ("use_dynamic_bsz", "micro_batch_size_per_gpu", "micro_batch_size")
        if any(self[f"{REF}.log_prob_{name}"] for name in names):
            return ""
        size = self[f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"] or 1
        return f" {REF}.log_prob_micro_batch_size_per_gpu={size}"

    @property
    def may_call_tools(self) -> bool:
        """Return False if all responses come from veRL's agent loop for one turn."""
        return bool(self.agents - {SINGLE_TURN}) or not self.complete(*DATA)

    @cached_property
    def prompts(self) -> RolloutPrompts | str:
        """Return what renders the prompts, or why they are not compared: it takes a second to load a large tokenizer."""
        tokenizer = Path(str(self[TOKENIZER] or self[MODEL_PATH])).expanduser()
        if not any(self.files(key) for key in DATA):
            return "no data file without an error is on this machine"
        if not tokenizer.is_dir():
            return f"the tokenizer is not on this machine, {tokenizer} is not a directory here"
        if self.data_set:
            return f"{self.data_set} reads the files"
        try:
            return RolloutPrompts(self.config)
        except ValueError as error:
            return str(error)

    def opened(self, key: str) -> dict[Path, DataFile | UnreadableFileError]:
        """Return the files under a key that are here, as veRL opens them, or the reason why it cannot."""
        paths = [path for path in self.local(key) if path.is_file()]
        for path in paths:
            if path not in self._opened:
                self._opened[path] = open_data_file(path)
        return {path: self._opened[path] for path in paths}
