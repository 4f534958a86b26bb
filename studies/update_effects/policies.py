"""Policies whose updates run.py measures: language models of the trainer of studies, and chains of tokens.

Each offers `parameters`; `rate`, of Adam; `halves`, the mini-batches of a step; `gradients` of a mini-batch for both arms; and
`log_probs` of its tokens. Where accuracy can be computed there is `accuracy`, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoTokenizer

from studies import trainer
from studies.chains import chains
from studies.comparisons.run import make_inputs
from studies.comparisons.study import read_study

Tensors = Sequence[torch.Tensor]


class Half(NamedTuple):
    """A mini-batch.

    Args:
        batch: what the policy needs to compute log-probabilities of its tokens again.
        advantages: of the tokens, any shape; 0 at padding.
        roles: which tokens have a role, if roles are known.
    """

    batch: Any
    advantages: torch.Tensor
    roles: Mapping[str, torch.Tensor] = {}

    @property
    def responses(self) -> torch.Tensor:
        """Return which rows have an advantage."""
        return (self.advantages != 0).flatten(1).any(-1)


@dataclass
class LanguageModel:
    """A language model in the trainer of studies; options of the trained arm and of the other one differ in `arm` alone."""

    model: Any
    tokenizer: Any
    arms: Sequence[trainer.Options]

    def __post_init__(self) -> None:
        self.parameters = list(self.model.parameters())
        self.rows = trainer.read_rows(self.arms[0].train, self.tokenizer)
        self.rate, self.grad_clip, self.steps = self.arms[0].lr, self.arms[0].grad_clip, self.arms[0].steps

    @classmethod
    def of(cls, plan: Mapping[str, Any], names: Sequence[str], seed: int, out: Path) -> LanguageModel:
        """Build the policy of a study of `studies/comparisons`, with data and model in `out`."""
        study = read_study((Path(__file__).parent / plan["study"]).resolve(), plan["overrides"], names)
        inputs = make_inputs(study, out)
        given = {"train": str(inputs.train), "model": inputs.model, "out": "unused", "seed": seed, **study.settings}
        arms = [trainer.Options(**given, **study.arms[name]) for name in names]
        torch.set_num_threads(arms[0].threads)
        return cls(trainer.load_model(inputs.model, arms[0].device), AutoTokenizer.from_pretrained(inputs.model), arms)

    def halves(self, step: int) -> list[Half]:
        """Sample and score the responses of a step as the trainer does, and return its mini-batches."""
        options = self.arms[0]
        rows = trainer.batch_rows(self.rows, options.prompts, options.seed, step)
        prompts, noise = [row.prompt for row in rows], f"train/{options.seed}/{step}"
        with trainer.half_precision(options.device, options.bf16):
            batch = trainer.draw(self.model, prompts, options.samples, options, noise)
        found = trainer.scores(batch, [row for row in rows for _ in range(options.samples)], self.tokenizer)
        rewards = torch.tensor([[one["score"]] for one in found], device=batch.mask.device)
        at_end = torch.zeros_like(batch.log_probs).scatter_(-1, batch.mask.sum(-1, keepdim=True) - 1, rewards)
        groups = [place // options.samples for place in range(len(found))]
        advantages = trainer.group_relative_advantages(at_end, batch.mask, groups)
        size = options.mini_prompts * options.samples
        return [
            Half(trainer.Batch(*(column[begin : begin + size] for column in batch)), advantages[begin : begin + size])
            for begin in range(0, len(found), size)
        ]

    def gradients(self, half: Half) -> list[Tensors]:
        """Return the gradients of each arm's loss, before clipping."""
        trained, batch = half.responses, half.batch
        with trainer.half_precision(self.arms[0].device, self.arms[0].bf16):
            log_prob = trainer.trained_log_probs(self.model, batch, self.arms[0], trained | ~trained.any())
        given = {"old_log_prob": batch.log_probs, "advantages": half.advantages, "response_mask": batch.mask}
        found: list[Tensors] = []
        for arm in self.arms:
            weighting, clip, _ = arm.objective()
            loss = trainer.compute_policy_loss(log_prob, **given, weighting=weighting, clip=clip).loss
            found.append(torch.autograd.grad(loss, self.parameters, retain_graph=arm is not self.arms[-1]))
        return found

    def log_probs(self, half: Half) -> torch.Tensor:
        """Return log-probabilities of responses with an advantage, in float32: bfloat16 would round small updates away."""
        return trainer.trained_log_probs(self.model, half.batch, self.arms[0], half.responses)


@dataclass
class ChainPolicies:
    """So many `seeds` policies over chains of tokens, which count as one with the parameters of all.

    The names are those of the arm that is trained and of the other one; `seed` is of starts, prompts and sampling.
    """

    chain: chains.Chain
    names: Sequence[str]
    rate: float
    seeds: int
    seed: int

    def __post_init__(self) -> None:
        self.parameters = [p.requires_grad_() for p in chains.start_policies(self.chain, self.seeds, self.seed)]
        self.train, self.held_out = chains.split_prompts(self.seeds, self.seed)
        self.training, self.grad_clip = chains.Training("adam", 1), float("inf")
        self.steps = self.training.steps
        self.generator = torch.Generator().manual_seed(self.seed)

    @classmethod
    def of(cls, plan: Mapping[str, Any], names: Sequence[str], seed: int, out: Path) -> ChainPolicies:
        """Build the policies of a kind of chain."""
        chain = chains.Chain(plan["fillers"], plan["right"])
        return cls(chain, names, plan["rate"], plan["policies"], seed)

    def halves(self, step: int) -> list[Half]:
        """Sample and score the chains of the next step, and return its mini-batches."""
        prompts = chains.draw_prompts(self.train, self.training.prompts, self.generator)
        batch = chains.sample_batch(self.parameters, prompts, self.training.samples, self.generator)
        roles = {"decision": [chains.FIRST, chains.LAST], "filler": chains.ORDINARY[: self.chain.fillers]}
        found = []
        for part in chains.updates(batch, self.training):
            places = {role: torch.zeros_like(part.tokens, dtype=torch.bool) for role in roles}
            for role, positions in roles.items():
                places[role][..., positions] = True
            found.append(Half(part, part.advantages, places))
        return found

    def gradients(self, half: Half) -> list[Tensors]:
        """Return the gradients of each arm's loss."""
        losses = (chains.seeds_loss(self.parameters, half.batch, chains.arm_weighting(name)) for name in self.names)
        return [torch.autograd.grad(loss, self.parameters) for loss in losses]

    def log_probs(self, half: Half) -> torch.Tensor:
        """Return log-probabilities of all tokens."""
        return chains.token_log_probs(self.parameters, half.batch)

    def accuracy(self) -> float:
        """Return the exact accuracy on held-out prompts, a mean over policies."""
        return chains.exact_accuracy(self.parameters, self.held_out).mean().item()


POLICIES: dict[str, Any] = {"study": LanguageModel, "fillers": ChainPolicies}
"""By a key that only their plans have."""


def build_policy(plan: Mapping[str, Any], names: Sequence[str], seed: int, out: Path) -> LanguageModel | ChainPolicies:
    """Build the policy of one run of the plan; `out` is for its data and model."""
    [kind] = [kind for key, kind in POLICIES.items() if key in plan]
    return kind.of(plan, names, seed, out)
