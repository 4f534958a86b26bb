"""Name the figures of the plan that torch, transformers and the configuration cannot be asked for, each with source and error.

A record of a real card replaces a figure here, and its error.
"""

from __future__ import annotations

from typing import NamedTuple

GIB = 2**30


class Constant(NamedTuple):
    """A figure, by how much it may be wrong, its unit, and where it was read."""

    value: float
    error: float
    unit: str
    source: str


CARD = Constant(
    0.988, 0.004, "GiB that a program sees, of each GB in a card's name",
    "total memory in public logs: 79.1 to 79.3 of 80, 47.4 of 48, 39.4 of 40, 31.4 of 32, 23.6 of 24",
)  # fmt: skip
CONTEXT = Constant(
    0.5, 0.2, "GiB of a CUDA context, for each process on a card",
    "github.com/llm-d-incubation/llm-d-fast-model-actuation/issues/746: 78.66 GiB are free in the first process of an H100",
)  # fmt: skip
COMMUNICATION = Constant(
    0.8, 0.4, "GiB of NCCL's buffers and cuBLAS' workspace, for each process on one of several cards",
    "github.com/vllm-project/vllm/pull/11743: 1.27 GiB that torch did not allocate, its context included",
)  # fmt: skip
ASLEEP = Constant(
    1.5, 1.0, "GiB that a sleeping vLLM keeps beside its context: CUDA graphs, buffers",
    "github.com/vllm-project/vllm/issues/32714 and 47654: 1.1 GiB on four small cards, 7.0 GiB with the largest model in eight",
)  # fmt: skip
GRAPHS = Constant(
    0.7, 0.7, "GiB of CUDA graphs, which vLLM takes off the cache",
    "github.com/vllm-project/vllm/issues/47654: 1.4 GiB for the largest model; none with enforce_eager",
)  # fmt: skip
FRAGMENTS = Constant(
    1.15, 0.10, "of the activations of a pass, which torch's allocator reserves: micro-batches differ in length",
    "github.com/verl-project/verl/issues/2822: 38.3 GB reserved for 32.0 GB, the trainer alone",
)  # fmt: skip
PLAN = Constant(
    0.10, 0.0, "of the card: error of a phase with activations, within which nothing is claimed",
    "the largest batches that ran in veRL's LoRA scripts of examples/tuning, 7B to 72B (docs/will_it_fit.md)",
)  # fmt: skip
QUARTER = Constant(
    0.25, 0.15, "mean length of a response, of the allowed one, in the column of short responses",
    "an assumption: no source was read for it; runs that fill the allowed length are the other column",
)  # fmt: skip
# All constants, for the page and its test.
CONSTANTS = {name: each for name, each in dict(globals()).items() if isinstance(each, Constant)}
