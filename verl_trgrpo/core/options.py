"""Hold the options of clips, masks, Lopti and the advantages; those of the token weights are ``losses.TokenWeighting``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch

from verl_trgrpo.common.findings import range_errors
from verl_trgrpo.common.options import Options
from verl_trgrpo.core.shaping import not_computed
from verl_trgrpo.core.tokens import Tokens, quantile


@dataclass(frozen=True)
class HighEntropyClip(Options):
    """Hold a clip range of its own for the tokens of high entropy, as the public code of ASPO has it.

    The defaults are those of github.com/wizard-III/Archer2.0 at b08d963 (``verl/workers/actor/dp_actor.py``): the quantile is
    that of each response's entropies, so it does not depend on micro-batches, and tokens above it are clipped by 0.4 instead
    of 0.2 on both sides. (Its names ``high_entropy_mask`` and ``low_entropy_mask`` are the wrong way round.)

    Args:
        quantile: of the entropies of a response's generated tokens; tokens above it are those of high entropy; in (0, 1).
        low: their eps_low, in [0, 1].
        high: their eps_high, >= 0.

    Raises:
        ValueError: a value out of range; all are listed.
    """

    where = "high_entropy_clip."
    quantile: Annotated[float, "(0, 1)"] = 0.8
    low: Annotated[float, "[0, 1]"] = 0.4
    high: Annotated[float, "[0, inf]"] = 0.4

    def applies(self, tokens: Tokens) -> torch.Tensor:
        """Return True for the tokens of high entropy, (batch, response_length).

        Raises:
            ValueError: the entropy is missing.
        """
        if tokens.entropy is None:
            raise ValueError(not_computed("high_entropy_clip", "entropy"))
        return tokens.valid & (tokens.entropy > quantile(tokens.entropy, tokens.valid, self.quantile))


@dataclass(frozen=True)
class ClipRange(Options):
    """Hold the clip range of the importance ratio r, with veRL's defaults.

    Args:
        low: eps_low, the ratio is clipped below 1 - low; in [0, 1].
        high: eps_high, the ratio is clipped above 1 + high; >= 0.
        dual: c of dual clip (arXiv 1912.09729), upper bound of the ratio for A < 0; > 1.
        high_entropy: another low and high for tokens of high entropy, only for the surrogate ``aspo``; None for all alike.

    Raises:
        ValueError: a value out of range; all are listed, under veRL's names.
    """

    where = "clip_ratio_"
    low: Annotated[float, "[0, 1]"] = 0.2
    high: Annotated[float, "[0, inf]"] = 0.2
    dual: float = 3.0
    high_entropy: HighEntropyClip | None = None

    def problems(self) -> list[str]:
        """Return a message for a `dual` out of range, under veRL's name."""
        return range_errors({"c": self.dual}, {"c": "(1, inf]"})


@dataclass(frozen=True)
class OffPolicyMask(Options):
    """Leave out wrong responses from which the policy has moved away since they were sampled (OPSM, arXiv 2512.02556).

    The probabilities of the sampling policy are those of the rollout engine, as in the paper and in TRL
    (``off_policy_mask_threshold``), so that what engine and trainer differ by counts as well as the age of the weights. The
    paper gives no ``delta``; 0.5 is where TRL's documentation begins. slime's 1e-4 is for the trainer's own old probabilities.

    Args:
        delta: bound of the mean of log p_rollout - log p over a response's tokens, nats; >= 0.

    Raises:
        ValueError: a value out of range.
    """

    where = "opsm."
    delta: Annotated[float, "[0, inf)"] = 0.5

    def left_out(self, tokens: Tokens) -> torch.Tensor:
        """Return True for the tokens of the responses that are left out, (batch, response_length).

        Raises:
            ValueError: the rollout's probabilities are missing.
        """
        if tokens.rollout_log_prob is None:
            raise ValueError(not_computed("opsm", "rollout_log_prob"))
        drift = tokens.rollout_log_prob - tokens.log_prob.detach()
        mean = drift.sum(-1, keepdim=True) / tokens.valid.sum(-1, keepdim=True).clamp(min=1)
        return (tokens.advantages < 0) & (mean > self.delta)


@dataclass(frozen=True)
class LoptiOptions(Options):
    """Hold the options of Lopti: update with the rare tokens of a batch first, then with the others (arXiv 2505.12929).

    Seen in the authors' code (github.com/zhyang2226/AR-Lopti, ``ray_trainer.py`` 1253-1290): rare tokens have an old
    probability below the threshold; each pass updates with the whole batch, its mini-batches included, with advantages, KL
    and entropy of the other tokens 0, all divided by the number of all tokens; old log-probabilities stay those before both.
    Different there: the learning-rate scheduler steps after each pass, here once per batch.

    Args:
        threshold: eta in (0, 1), the old probability below which a token is rare. The authors' scripts have 0.5 with
            Advantage Reweighting and 0.4 without.
        quantile: in (0, 1), the share of the batch's tokens that are rare; replaces the threshold.
        rare_first: update with the rare tokens first, as published; false means last.

    Raises:
        ValueError: a value out of range; all are listed.
    """

    threshold: Annotated[float, "(0, 1)"] = 0.5
    quantile: Annotated[float | None, "(0, 1)"] = None
    rare_first: bool = True


@dataclass(frozen=True)
class DifficultyOptions(Options):
    """Hold the options of HA-DW.

    Args:
        window: number of batches whose mean accuracy is the one that is expected of the policy, the present one among them; >= 1.
        scale: lambda > 0, a factor of all weights. The paper's best is 1.3, the authors' code has 1.5.
        correct_from: a response is right if its reward is at least this.

    Raises:
        ValueError: a value out of range; all are listed.
    """

    window: Annotated[int, "[1, inf)"] = 10
    scale: Annotated[float, "(0, inf)"] = 1.3
    correct_from: Annotated[float, "(-inf, inf)"] = 1.0


@dataclass(frozen=True)
class OutcomeOptions(Options):
    """Hold the options of W-REINFORCE.

    Args:
        positive: lambda >= 0, the advantage of right responses; wrong ones have -1.
        correct_from: a response is right if its reward is at least this.

    Raises:
        ValueError: a value out of range; all are listed.
    """

    positive: Annotated[float, "[0, inf)"] = 0.1
    correct_from: Annotated[float, "(-inf, inf)"] = 1.0
