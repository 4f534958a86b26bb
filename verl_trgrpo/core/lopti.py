"""Hold the options of Lopti: update with the rare tokens of a batch first, then with the others (arXiv 2505.12929).

tests/cluster/test_train_mini_batch.py compares its updates with an independent loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from verl_trgrpo.common.options import Options


@dataclass(frozen=True)
class LoptiOptions(Options):
    """Hold the options of Lopti.

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

    def problems(self) -> list[str]:
        """Return a message if `rare_first` is no boolean."""
        known = isinstance(self.rare_first, bool)
        return [] if known else [f"rare_first={self.rare_first!r} is not a boolean; give true or false"]
