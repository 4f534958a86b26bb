"""A reward that a random model can earn, so that a few steps already have gradients."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    letters = sum(character.isalpha() for character in solution_str)
    return {"score": letters / 100, "acc": float(letters % 2), "format_ok": float(letters % 3 > 0)}
