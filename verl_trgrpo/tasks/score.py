"""What every reward returns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """The verdict on one response.

    Every reward gives the same fields: veRL collects the extra keys of a batch from its first row, so rows of different
    families can share a batch only if their keys agree.

    score: the reward for training; its range is the family's.
    acc: 1.0 if the answer is right, else 0.0.
    format_ok: 1.0 if an answer was found where the family wants it, else 0.0.
    f1: partial credit from 0.0 to 1.0 where the family defines one (search QA), else equal to `acc`. Never a reward by
        itself.
    gold_unparseable: 1.0 if the ground truth could not be understood, so that `acc` 0.0 does not mean "wrong".
    timed_out: 1.0 if the comparison was stopped at its limit of time or memory, so that `acc` 0.0 means "unknown".
    """

    score: float
    acc: float
    format_ok: float = 1.0
    f1: float | None = None
    gold_unparseable: float = 0.0
    timed_out: float = 0.0

    def as_dict(self) -> dict[str, float]:
        """Return the fields as veRL takes them, all float."""
        return {
            "score": self.score,
            "acc": self.acc,
            "format_ok": self.format_ok,
            "f1": self.acc if self.f1 is None else self.f1,
            "gold_unparseable": self.gold_unparseable,
            "timed_out": self.timed_out,
        }
