"""TRL's GRPOTrainer with this project's token weights: any shaping, of the policy of the moment, outside the clip.

    trainer = ShapedGRPOTrainer(model, rewards, args=GRPOConfig(loss_type="grpo"), train_dataset=data, shaping="sigmoid")

Weights are not negative, so that w min(r A, clip(r) A) = min(r w A, clip(r) w A): the weight of a token can ride on its
advantage, which TRL takes per token. With ``loss_type`` grpo, bnpo, dr_grpo, dapo, cispo or sapo, without Liger kernels. Tried
with TRL 1.12.0 and 1.16.0; beside veRL 0.9 only TRL before 1.13 works: ``pip install -e ".[trl]"``.
"""

from typing import Any

import torch
from trl import GRPOTrainer

from verl_trgrpo.core import Tokens, make_shaping


class ShapedGRPOTrainer(GRPOTrainer):
    def __init__(self, *args: Any, shaping: str = "sigmoid", options: dict[str, Any] | None = None, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.shaping = make_shaping(shaping, **(options or {}))
        self._batch: dict[str, Any] | None = None  # of the loss being computed

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._batch = {**inputs}
        try:
            return super()._compute_loss(model, self._batch)
        finally:
            self._batch = None

    def _get_per_token_logps_and_entropies(self, *args: Any, **kw: Any) -> Any:
        log_prob, entropy, *rest = super()._get_per_token_logps_and_entropies(*args, **kw)
        if (batch := self._batch) is not None:  # called by the loss, which reads the advantages after this
            old, mask = batch.get("old_per_token_logps"), batch["completion_mask"] * batch.get("tool_mask", 1)
            given = {"old_log_prob": log_prob if old is None else old, "response_mask": mask, "entropy": entropy}
            advantages = batch["advantages"].view(len(log_prob), -1).expand_as(log_prob)
            tokens = Tokens.of_batch(log_prob, advantages=advantages, **given)
            batch["advantages"] = advantages * self.shaping.weigh(tokens)
        return log_prob, entropy, *rest
