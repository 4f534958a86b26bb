"""The figures of a run, computed by hand from its metrics."""

import pytest

from verl_trgrpo.runs.compare.figures import FIGURES, run_figures
from verl_trgrpo.runs.metrics import Step

VALIDATION = {0: (0.2, 0.4), 2: (0.6, 0.8), 4: (0.5, 0.5)}


def steps():
    found = []
    for number in range(5):
        metrics = {}
        if number:
            metrics = {
                "actor/grad_norm": 2.0 ** (number % 2),
                "actor/entropy": 0.1 * number,
                "response_length/mean": 10 * number,
            }
        if number in VALIDATION:
            a, b = VALIDATION[number]
            metrics |= {"val-core/kk_2ppl/acc/mean@1": a, "val-core/kk_3ppl/acc/mean@1": b}
            metrics |= {"val-train/kk_2ppl/acc/mean@1": 0.9, "val-train/kk_3ppl/acc/mean@1": 0.7}
        found.append(Step(number, metrics))
    return found


def test_figures_of_one_source():
    figures = run_figures(steps(), "val-core/kk_3ppl/acc/mean@1")
    assert figures == pytest.approx(
        {
            "final_accuracy": 0.5,
            "best_accuracy": 0.8,
            "area": (2 * 0.6 + 2 * 0.65) / 4,
            "gap": 0.2,
            "grad_norm": 1.5,
            "grad_roughness": 0.6931471805599453,
            "entropy": 0.25,
            "response_length": 25,
        }
    )
    assert {*figures} == {*FIGURES}


def test_the_last_five_steps_count_for_entropy_and_length():
    many = [Step(i, {"actor/entropy": float(i), "response_length/mean": 2.0 * i}) for i in range(1, 21)]
    assert run_figures(many, None) == {"entropy": 18.0, "response_length": 36.0}


def test_a_single_validation_is_one_figure_and_no_curve():
    assert run_figures([Step(4, {"val-core/kk/acc/mean@1": 0.5})], None) == {"final_accuracy": 0.5}


def test_what_was_not_logged_has_no_figure():
    assert run_figures([Step(1, {"actor/grad_norm": 0.5})], None) == {"grad_norm": 0.5}
    assert run_figures([], None) == {}
