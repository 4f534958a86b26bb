"""Replay buffer that gives every step of one training its own algorithm, so that many algorithms share one start of veRL.

For ``trainer.v1.sampler.custom_sampler``, which veRL's trainer loads in its own process and calls at the beginning of a step.
"""

import functools
import json
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf


class AlgorithmBuffer:
    """The project's replay buffer, after it has put the next algorithm of a plan in force.

    Args:
        arguments: of veRL's ``ReplayBuffer``; ``sampler_kwargs.plan`` is a JSON file with, for each step, an option of the
            group ``algorithm``, overrides of the groups that it brings along, and of single keys.
    """

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        self._trainer = arguments["refill_fn"].__self__
        self._start = self._trainer.config.copy()
        self._plan = json.loads(Path(arguments["sampler_kwargs"]["plan"]).read_text())
        self._buffer: Any = None
        self._choice: list[str] = []

    def sample(self, global_steps: int, **arguments: Any) -> Any:
        choice = self._plan[max(global_steps, 1) - 1]  # the validation before the first step is step 0
        if choice != self._choice:
            self._switch(choice)
            self._choice = choice
        return self._buffer.sample(global_steps=global_steps, **arguments)

    def _switch(self, choices: list[str]) -> None:
        """Put an algorithm in force where it is read: in the trainer, in its buffer, and in the workers' loss."""
        from verl.trainer.ppo.core_algos import get_kl_controller
        from verl.utils.config import omega_conf_to_dataclass
        from verl.utils.import_utils import load_extern_object
        from verl.workers import engine_workers

        from verl_trgrpo.config import OWN_CONFIGS
        from verl_trgrpo.runs.compose import algorithm_settings, verl_defaults

        config = self._start.copy()
        OmegaConf.set_struct(config, False)
        # The start has resolved what the buffer takes from the algorithm.
        sampler = OmegaConf.load(OWN_CONFIGS / "run_defaults.yaml").trainer.v1.sampler
        config.trainer.v1.sampler.update(sampler)
        config.trainer.v1.sampler.sampler_kwargs.poll_interval = 0.1
        config.actor_rollout_ref.actor.policy_loss = verl_defaults().actor_rollout_ref.actor.policy_loss
        keys = [choice for choice in choices if "." in choice.partition("=")[0]]
        for key, value in algorithm_settings(*(choice for choice in choices if choice not in keys)).items():
            OmegaConf.update(config, key, value, force_add=True)
        config.merge_with_dotlist(keys)
        self._trainer.config = config
        self._trainer.kl_ctrl_in_reward = get_kl_controller(config.algorithm.kl_ctrl)
        sampler = config.trainer.v1.sampler
        build = load_extern_object(sampler.custom_sampler.path, sampler.custom_sampler.name)
        self._buffer = build(**{**self._arguments, "sampler_kwargs": sampler.sampler_kwargs})
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        self._trainer.actor_rollout_wg.set_loss_fn(functools.partial(engine_workers.ppo_loss, config=actor))
