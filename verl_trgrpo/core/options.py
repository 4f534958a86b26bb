"""Options of the objective, validated on construction. METHOD: arXiv 2511.00066 and the choices it leaves open."""

from __future__ import annotations

from dataclasses import dataclass, field

from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.core.shaping import Shaping, make_shaping

CHOICES = {
    "placement": ("outside", "inside"),
    "prob_source": ("current", "old"),
    "normalize": ("none", "token_mean"),
    "kl": ("plain", "scaled", "literal"),
}


@dataclass
class TokenWeighting:
    """How token weights enter the loss.

    Args:
        shaping: from a token to its weight; default is the published sigmoid of the token's probability.
        placement: ``outside`` (default) multiplies the clipped surrogate. ``inside`` puts w * r into both branches of the
            min and the clip, as the paper's equation is typeset; with clip 0.2 and w = 1.4 an on-policy token with A > 0
            is then already past the clip and gets no gradient.
        prob_source: ``current`` (default) weights by pi_theta, detached; ``old`` by pi_old, so that the weights do not move
            within an update.
        normalize: ``none`` (default), or ``token_mean`` to divide the weights by their mean over the valid tokens of the
            micro-batch, which removes the common factor and leaves pure shaping.
        kl: how the weights enter the KL loss, if the run has one: ``plain`` (default) not at all; ``scaled`` is w * k3;
            ``literal`` is w rho - log(w rho) - 1 with rho = pi_ref / pi_theta, the paper's form. ``literal`` is not zero at
            pi_theta = pi_ref unless w = 1, and its gradient there pushes the policy away from the reference.

    Raises:
        ValueError: listing every unknown choice and every impossible combination.
    """

    shaping: Shaping = field(default_factory=make_shaping)
    placement: str = "outside"
    prob_source: str = "current"
    normalize: str = "none"
    kl: str = "plain"

    def __post_init__(self) -> None:
        problems = [
            f"{name}={getattr(self, name)!r} is unknown; choose {' or '.join(choices)}"
            for name, choices in CHOICES.items()
            if getattr(self, name) not in choices
        ]
        if not isinstance(self.shaping, Shaping):
            problems.append(f"shaping={self.shaping!r} is not a Shaping; build it with make_shaping(name, ...)")
        elif self.kl == "literal" and self.shaping.bounds[0] <= 0:
            problems.append(
                f"kl='literal' takes log(w), but shaping {self.shaping} may give the weight 0; "
                "raise its lower bound above 0 or use kl='scaled'"
            )
        raise_invalid(problems)


@dataclass(frozen=True)
class ClipRange:
    """Clipping of the importance ratio r, with veRL's names and defaults.

    Args:
        low: eps_low, the ratio is clipped below 1 - low; in [0, 1].
        high: eps_high, the ratio is clipped above 1 + high; >= 0.
        dual: c of dual clip (arXiv 1912.09729), bound of the ratio for A < 0; > 1.

    Raises:
        ValueError: listing every number out of range.
    """

    low: float = 0.2
    high: float = 0.2
    dual: float = 3.0

    def __post_init__(self) -> None:
        values = {"clip_ratio_low": self.low, "clip_ratio_high": self.high, "clip_ratio_c": self.dual}
        ranges = {"clip_ratio_low": "[0, 1]", "clip_ratio_high": "[0, inf]", "clip_ratio_c": "(1, inf]"}
        raise_invalid(range_errors(values, ranges))
