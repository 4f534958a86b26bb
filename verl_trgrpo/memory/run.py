"""Make the plan of a composed run, and write it down."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.foreign import ForeignFileError, read_foreign_json
from verl_trgrpo.memory.constants import CARD, PLAN
from verl_trgrpo.memory.plan import Plan
from verl_trgrpo.memory.setup import setup_of
from verl_trgrpo.memory.shape import UnknownModelError, model_shape, optimizer_bytes
from verl_trgrpo.memory.verdict import NOT_KNOWN, MemoryVerdict, memory_verdict, short_mean
from verl_trgrpo.runs.keys import ACTOR, MODEL, MODEL_PATH, selected
from verl_trgrpo.runs.records import read_record

# Of a card, where neither the command nor the machine says another.
_USUAL_GB = 80.0
# Terms of a phase that are written down, the largest first.
_WRITTEN = 4


@dataclass(frozen=True)
class MemoryAnswer:
    """Whether a run fits.

    Args:
        plan: None where the memory is not known.
        verdict: None where the memory is not known.
        reason: why it is not known.
        card: where the size of the card comes from.
    """

    plan: Plan | None
    verdict: MemoryVerdict | None
    reason: str
    card: str

    @property
    def line(self) -> str:
        """Return the last line of the plan."""
        return self.verdict.line if self.verdict else f"memory plan: {NOT_KNOWN} ({self.reason})"

    def lines(self) -> Iterator[str]:
        """Yield the plan, a line for each phase, and its last line."""
        if self.plan:
            yield from plan_lines(self.plan, self.card)
        yield self.line


def memory_answer(config: DictConfig, gpu_gb: float | None, has_reference: bool, needs_critic: bool) -> MemoryAnswer:
    """Return whether a run fits on cards of `gpu_gb`; None: on this machine's, or on those of 80 GB where it has none."""
    here = card_here() if gpu_gb is None else None
    gb = gpu_gb or here or _USUAL_GB
    card = "--gpu-gb" if gpu_gb else "this machine's" if here else "no card here, --gpu-gb names another"
    try:
        setup = setup_of(lambda key: selected(config, key), has_reference, needs_critic)
        plan = Plan(model_shape(model_config(config), setup.lora), setup, gb, _optimizer(config))
    except UnknownModelError as error:
        return MemoryAnswer(None, None, str(error), card)
    return MemoryAnswer(plan, memory_verdict(plan), "", card)


def model_config(config: DictConfig) -> Mapping[str, Any]:
    """Return the content of a model's ``config.json``, from its directory or from the hub's cache, with the run's overrides.

    Raises:
        UnknownModelError: the file is not on this machine, or is damaged.
    """
    name = str(selected(config, f"{MODEL}.hf_config_path") or selected(config, MODEL_PATH))
    file = Path(name).expanduser() / "config.json"
    if not file.is_file():
        file = _cached(name)
    try:
        content = read_foreign_json(file)
    except ForeignFileError as error:
        raise UnknownModelError(str(error)) from error
    if not isinstance(content, dict):
        raise UnknownModelError(f"{file} is not a JSON object")
    changed = selected(config, f"{MODEL}.override_config") or {}
    changes: Any = OmegaConf.to_container(changed, resolve=True) if OmegaConf.is_config(changed) else changed
    return {**content, **{key: value for key, value in changes.items() if key in content}}


def _cached(name: str) -> Path:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        found = None
    if not isinstance(found, str):
        raise UnknownModelError(f"the config.json of {name} is not on this machine; `hf download {name} config.json`")
    return Path(found)


def _optimizer(config: DictConfig) -> tuple[float, float]:
    """Return what the run's optimizer needs, see :func:`~verl_trgrpo.memory.shape.optimizer_bytes`."""
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config.optimizer import build_optimizer

    options = omega_conf_to_dataclass(selected(config, f"{ACTOR}.optim"))
    return optimizer_bytes(lambda weights: build_optimizer(weights, options))


@cache
def card_here() -> float | None:
    """Return the size of this machine's smallest card, in GB as in a card's name; None without one, or without its driver."""
    command = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    sizes = [int(each) for each in found if each.isdigit()]
    return min(sizes) / 1024 / CARD.value if sizes else None


def card_of_run(path: Path) -> float | None:
    """Return the size of the cards of a run, in GB as in a card's name: by its ``run.json``, else this machine's."""
    with contextlib.suppress(ForeignFileError, OSError):
        if found := re.search(r"\b(\d{2,3}) ?GB\b", read_record(path, needed=False).machine or ""):
            return float(found[1])
    return card_here()


def plan_lines(plan: Plan, card: str) -> Iterator[str]:
    """Yield the table of a plan: for each phase its GiB with short and with the allowed lengths, its share, its terms."""
    few, many = plan.at(short_mean(plan.setup)), plan.at(plan.setup.longest)
    tightest = max(many, key=lambda phase: phase.share).name
    yield (
        f"GiB of {plan.card:.1f} on a card of {plan.gb:.0f} GB ({card}), at a mean of {short_mean(plan.setup):.0f} and of "
        f"{plan.setup.longest} tokens of prompt and response; veRL 0.9.1, error {PLAN.value:.0%} of a card until measured"
    )
    for first, last in zip(few, many, strict=True):
        largest = sorted(last.terms.items(), key=lambda term: -term[1])
        terms = ", ".join(f"{what} {size:.1f}" for what, size in largest[:_WRITTEN])
        rest = sum(size for _, size in largest[_WRITTEN:])
        more = f", others {rest:.1f}" if rest >= 0.05 else ""
        of = " of the engine's share" if last.name == "cache" else ""
        mark = "  < tightest" if last.name == tightest else ""
        yield f"  {last.name:<18}{first.total:>7.1f}{last.total:>7.1f}{last.share:>6.0%}{of}  {terms}{more}{mark}"
    host = [(what, size) for what, size in plan.host() if size >= 0.05]
    listed = ", ".join(f"{what} {size:.1f}" for what, size in host)
    yield f"  {'host memory':<18}{sum(size for _, size in host):>14.1f}        of a machine, at least: {listed}"
