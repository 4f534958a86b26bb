"""A reward that a random model can earn, so that a few steps already have gradients; it raises while a file exists."""

from pathlib import Path


def compute_score(data_source, solution_str, ground_truth, extra_info=None, broken_by="", **kwargs):
    if broken_by and Path(broken_by).exists():
        raise RuntimeError("the reward is broken")
    letters = sum(character.isalpha() for character in solution_str)
    return {"score": letters / 100, "acc": float(letters % 2), "format_ok": float(letters % 3 > 0)}
