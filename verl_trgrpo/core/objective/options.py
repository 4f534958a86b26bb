"""Options of the objective, validated on construction. METHOD: arXiv 2511.00066 and the choices it leaves open."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from verl_trgrpo.core.shaping import Shaping, make_shaping

PLACEMENTS = ("outside", "inside")
PROB_SOURCES = ("current", "old")
NORMALIZATIONS = ("none", "token_mean")
KL_KINDS = ("plain", "scaled", "literal")
RATIOS = ("plain", "flipped")


@dataclass
class TokenWeighting:
    """How token weights enter the loss.

    Args:
        shaping: from token probability to weight; default is the published sigmoid.
        placement: ``outside`` (default) multiplies the clipped surrogate. ``inside`` puts w * r into both branches of the
            min and the clip, as the paper's equation is typeset; with clip 0.2 and w = 1.4 an on-policy token with A > 0
            is then already past the clip and gets no gradient.
        prob_source: ``current`` (default) weights by pi_theta, detached; ``old`` by pi_old, so that the weights do not move
            within an update.
        normalize: ``none`` (default), or ``token_mean`` to divide the weights by their mean over the valid tokens of the
            micro-batch, which removes the common factor and leaves pure shaping.
        kl: ``plain`` (default) leaves the host's KL alone; ``scaled`` is w * k3; ``literal`` is w rho - log(w rho) - 1 with
            rho = pi_ref / pi_theta, the paper's form. ``literal`` is not zero at pi_theta = pi_ref unless w = 1, and its
            gradient there pushes the policy away from the reference.
        ratio: ``plain`` (default) is PPO's importance ratio; ``flipped`` is ASPO's (arXiv 2510.06062), 1/r where A > 0,
            with a dual clip on both sides that keeps the gradient.
        top_entropy: share in (0, 1) of the valid tokens of the micro-batch that keep their loss: those where the policy's
            entropy is highest (arXiv 2506.01939), or, where nobody knows the entropy, its one-sample estimate -log pi.
            Ties are kept. None (default) keeps all.

    Raises:
        ValueError: listing every unknown choice and every impossible combination.
    """

    shaping: Shaping = field(default_factory=make_shaping)
    placement: str = "outside"
    prob_source: str = "current"
    normalize: str = "none"
    kl: str = "plain"
    ratio: str = "plain"
    top_entropy: float | None = None

    def __post_init__(self) -> None:
        problems = [
            f"{name}={value!r} is unknown; choose {' or '.join(choices)}"
            for name, value, choices in (
                ("placement", self.placement, PLACEMENTS),
                ("prob_source", self.prob_source, PROB_SOURCES),
                ("normalize", self.normalize, NORMALIZATIONS),
                ("kl", self.kl, KL_KINDS),
                ("ratio", self.ratio, RATIOS),
            )
            if value not in choices
        ]
        if not isinstance(self.shaping, Shaping):
            problems.append(f"shaping={self.shaping!r} is not a Shaping; build it with make_shaping(name, ...)")
        elif self.kl == "literal" and self.shaping.bounds()[0] <= 0:
            problems.append(
                f"kl='literal' takes log(w) but {self.shaping!r} gives weights down to 0; "
                "raise its lower bound above 0 or use kl='scaled'"
            )
        problems += self._gate_problems()
        if self.placement == "inside" and self.ratio == "flipped":
            problems.append(
                "placement='inside' and ratio='flipped' exclude each other: the flipped ratio stands outside the clip; "
                "use placement='outside'"
            )
        if problems:
            raise ValueError("token regulation: " + "; ".join(problems))

    def _gate_problems(self) -> list[str]:
        share = self.top_entropy
        if share is None:
            return []
        if not _is_number(share) or not 0 < share < 1:
            return [f"top_entropy={share!r} is not a share in (0, 1); give e.g. 0.2, or null to keep all tokens"]
        return [
            f"top_entropy={share} gives most tokens the weight 0, which {name}={value!r} has no meaning for; "
            f"use {name}={remedy!r}"
            for name, value, remedy in (("placement", self.placement, "outside"), ("kl", self.kl, "plain"))
            if value in ("inside", "scaled", "literal")
        ]


@dataclass(frozen=True)
class ClipRange:
    """Clipping of the importance ratio r, with veRL's names and defaults.

    Args:
        low: eps_low, the ratio is clipped below 1 - low; in [0, 1].
        high: eps_high, the ratio is clipped above 1 + high; >= 0.
        dual: c of dual clip (arXiv 1912.09729), cap of the surrogate for A < 0; > 1.

    Raises:
        ValueError: listing every number out of range.
    """

    low: float = 0.2
    high: float = 0.2
    dual: float = 3.0

    def __post_init__(self) -> None:
        problems = []
        if not _is_number(self.low) or not 0 <= self.low <= 1:
            problems.append(f"clip_ratio_low={self.low!r} is not in [0, 1]")
        if not _is_number(self.high) or self.high < 0:
            problems.append(f"clip_ratio_high={self.high!r} is not >= 0")
        if not _is_number(self.dual) or self.dual <= 1:
            problems.append(f"clip_ratio_c={self.dual!r} is not > 1; dual clip needs room above the ratio 1")
        if problems:
            raise ValueError("clip range: " + "; ".join(problems))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
