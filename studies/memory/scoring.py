"""Score the memory plan on recorded cases; ``studies.memory.score`` says what a case has."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from verl_trgrpo.memory.plan import Plan
from verl_trgrpo.memory.setup import Setup, setup_of
from verl_trgrpo.memory.shape import ModelShape, UnknownModelError, model_shape
from verl_trgrpo.memory.verdict import DEPENDS, DOES_NOT, FITS, memory_verdict, short_mean
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.keys import ACTOR, MODEL, REF, ROLLOUT, selected

MODELS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "models.json").read_text())
_NAMED = {
    "Tulu-3-8B": "Llama-3.1-8B",
    "Qwen3.6-35B": "Qwen3.6-35B-A3B",
    "R1-Distill-Qwen-1.5B": "DeepSeek-R1-Distill-Qwen-1.5B",
}
# Billions of parameters of models that are named by their size alone.
_SIZES = {"0.5B": 0.494, "1.5B": 1.544, "3B": 3.086, "7B": 7.6, "14B": 14.77, "32B": 32.76, "72B": 72.7}
_DECIDE = re.compile("utilization|micro|max_token_len")
ADAMW = (2.0, 1.0)
# Mean tokens of prompt and response: the LoRA scripts of veRL's examples/tuning train on GSM8K, and eric-haibin-lin/verl-data has
# the log of one of them (Qwen2.5-72B, gsm8k).
_GSM8K = re.compile("verl-tuning-.*-lora")
_MEAN_GSM8K = 367.0


@cache
def shape_of(name: str, rank: int = 0) -> ModelShape:
    """Return the shape of a model of models.json, with adapters of a rank on all linear maps."""
    lora = {"r": rank, "target_modules": "all-linear"} if rank else None
    return model_shape(MODELS[name], lora)


def model_of(case: Mapping[str, Any]) -> str | None:
    """Return the name in models.json of a case's model; None where it is not known, or sees."""
    model, size = case["model"], case["params_b"]
    if "VL" in model:
        return None
    named = [name for part, name in _NAMED.items() if part in model]
    named += [name for name in MODELS if name.startswith("Qwen3-") and name in model]
    sized = [f"Qwen2.5-{name}" for name, each in _SIZES.items() if size and abs(size - each) < 0.03 * each]
    return next(iter([*named, *sized]), None)


def scorable(case: Mapping[str, Any]) -> bool:
    """Return whether a case states what the plan needs."""
    keys = [*case["overrides"], *case["old_keys"]]
    known = case["gpus"] and case["gpu_gb"] and model_of(case)
    return bool(case["outcome"] != "host_oom" and known and any(_DECIDE.search(key) for key in keys))


def setup_of_case(case: Mapping[str, Any]) -> Setup:
    """Return what the memory of a case depends on."""
    keys, old = dict(case["overrides"]), case["old_keys"]
    nodes, split = case["nodes"] or 1, keys.get(f"{ACTOR}.ulysses_sequence_parallel_size", 1)
    over_all = {
        "ppo_micro_batch_size (global)": ACTOR,
        "ppo_micro_batch_size": ACTOR,
        "log_prob_micro_batch_size (global)": ROLLOUT,
    }
    for name, section in over_all.items():
        if name in old:
            short_name = name.split()[0]
            keys.setdefault(f"{section}.{short_name}_per_gpu", max(1, old[name] * split // case["gpus"]))
    if "use_remove_padding" in old:
        keys.setdefault(f"{MODEL}.use_remove_padding", old["use_remove_padding"])
    if f"{ACTOR}.ppo_max_token_len_per_gpu" in keys:
        keys.setdefault(f"{ACTOR}.use_dynamic_bsz", True)
    if not keys.get(f"{ACTOR}.use_dynamic_bsz"):
        updated = keys.setdefault(f"{ACTOR}.ppo_micro_batch_size_per_gpu", 1)
        rated = keys.setdefault(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", updated)
        keys.setdefault(f"{REF}.log_prob_micro_batch_size_per_gpu", rated)
    longest = keys.get("data.max_prompt_length", 512) + keys.get("data.max_response_length", 512)
    keys = {f"{ROLLOUT}.max_model_len": longest, **keys, "trainer.nnodes": nodes}
    keys |= {"trainer.n_gpus_per_node": case["gpus"] // nodes, f"{ROLLOUT}.name": "vllm"}
    config = compose("ppo_trainer", [f"++{key}={json.dumps(value)}" for key, value in keys.items()]).config
    critic = keys.get("algorithm.adv_estimator") == "gae"
    return setup_of(lambda key: selected(config, key), bool(keys.get(f"{ACTOR}.use_kl_loss")), critic)


def mean_of(case: Mapping[str, Any]) -> float | None:
    """Return the mean tokens of prompt and response in a case; None where no source states them."""
    return case.get("mean_tokens") or (_MEAN_GSM8K if _GSM8K.match(case["id"]) else None)


def part_of(case: Mapping[str, Any]) -> str:
    """Return the half of a case: the formulas were written with the first half open."""
    return "unseen" if hashlib.sha256(case["id"].encode()).digest()[0] % 2 else "seen"


def score(cases: Path, part: str | None) -> None:
    """Print the verdict of the plan on each case of a file, and counts; of one half of them if `part` is given."""
    said, points, phases = Counter[tuple[str, str]](), Counter[str](), Counter[tuple[str, bool]]()
    at_length, refused = Counter[str](), list[str]()
    for case in map(json.loads, cases.read_text().splitlines()):
        if not scorable(case) or part not in (None, part_of(case)):
            continue
        try:
            setup = setup_of_case(case)
            plan = Plan(shape_of(str(model_of(case)), setup.lora_rank), setup, case["gpu_gb"], ADAMW)
        except UnknownModelError as error:
            said[case["outcome"], "not known"] += 1
            print(f"{case['id']:34}{case['outcome']:9}not known: {error}")
            continue
        verdict = memory_verdict(plan)
        mean, ran_out = mean_of(case), case["outcome"] == "gpu_oom"
        few = max(plan.at(mean or short_mean(plan.setup)), key=lambda phase: phase.share)
        right = (few.share > 1) == ran_out
        if verdict.kind == DEPENDS and mean:
            at_length["right" if right else "wrong"] += 1
        said[case["outcome"], verdict.kind] += 1
        points[("right" if right else "wrong")] += 1
        if case["outcome"] == "fits" and verdict.kind == DOES_NOT:
            refused.append(f"{case['id']} ({case['confidence']})")
        if ran_out:
            phases[str(case["phase"]).split(",")[0].split("(")[0].strip(), right] += 1
        row = f"{case['id']:34}{case['outcome']:9}{verdict.kind:27}{verdict.phase.name:18}{few.share:6.2f}"
        print(f"{row}  {case['phase'] or ''}")
    print("\noutcome and verdict:", *(f"{key}: {count}" for key, count in sorted(said.items())), sep="\n  ")
    claimed = said["fits", FITS] + said["gpu_oom", DOES_NOT]
    against = said["fits", DOES_NOT] + said["gpu_oom", FITS]
    depends = said["fits", DEPENDS] + said["gpu_oom", DEPENDS]
    print(f"claimed: {claimed} right, {against} wrong; depends {depends}; of {sum(said.values())}")
    print(f"of those that depend, at the stated mean length: {at_length['right']} right, {at_length['wrong']} wrong")
    of = sum(points.values())
    print(
        f"sum at the stated length, or at a quarter of the lengths, against the card: {points['right']} right of {of}"
    )
    print(f"refused although they ran: {', '.join(refused) or 'none'}")
    print("failures by phase, right or not:", *(f"{key}: {count}" for key, count in sorted(phases.items())), sep="\n  ")
