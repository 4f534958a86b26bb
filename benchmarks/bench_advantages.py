"""Advantage estimator against veRL's ``grpo`` in the same run (aim: at least 5 times faster), and its peak memory."""

from __future__ import annotations

import logging
import uuid
from functools import partial
from typing import Any

import numpy as np
import torch
from paired import compared, parser, peak_of_tensors, report
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

BATCH, LENGTH, GROUP = 8192, 1024, 8
ESTIMATORS = {"verl grpo": "grpo", "verl grpo_vectorized": "grpo_vectorized", "tr_grpo": "tr_grpo"}


def inputs(mask_dtype: str) -> dict[str, Any]:
    """Arguments of an estimator: outcome rewards, a full mask, groups labelled by uuid strings."""
    rewards = torch.zeros(BATCH, LENGTH)
    rewards[:, -1] = torch.randn(BATCH, generator=torch.Generator().manual_seed(0))
    labels = [str(uuid.UUID(int=i)) for i in range(BATCH // GROUP)]
    mask = torch.ones(BATCH, LENGTH, dtype=getattr(torch, mask_dtype))
    return {
        "token_level_rewards": rewards,
        "response_mask": mask,
        "index": np.repeat(np.array(labels, dtype=object), GROUP),
    }


def main() -> None:
    arguments = parser(__doc__, repeats=12).parse_args()
    torch.set_num_threads(arguments.threads)
    results = {}
    for dtype in ("float32", "int64", "bool"):
        data = inputs(dtype)
        calls = {shown: partial(get_adv_estimator_fn(name), **data) for shown, name in ESTIMATORS.items()}
        case = f"({BATCH}, {LENGTH}), groups of {GROUP}, mask {dtype}"
        results[case] = compared(calls, "verl grpo", arguments.repeats)
    peak = peak_of_tensors(partial(get_adv_estimator_fn("tr_grpo"), **inputs("float32"))) / (BATCH * LENGTH * 4)
    report("advantage estimators", results, arguments.out, peak_output_tensors=peak)
    print(f"\npeak memory of one tr_grpo call: {peak:.2f} output tensors")


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    main()
