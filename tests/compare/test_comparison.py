"""Figures of runs, and arms against a baseline: pairs, tests and their correction, with known answers."""

import pytest

from verl_trgrpo.compare.comparison import FIGURES, PValue, compare_figures, run_figures
from verl_trgrpo.compare.statistics import Estimate
from verl_trgrpo.compare.tables import interval_text
from verl_trgrpo.runs.metrics import Step


def figures(values, **others):
    """Runs of an arm with seeds 0, 1, ..."""
    return {
        seed: {"final_accuracy": value} | {name: column[seed] for name, column in others.items()}
        for seed, value in enumerate(values)
    }


BASE = [0.50, 0.51, 0.52, 0.53, 0.54, 0.55]


def test_all_secondary_tests_are_corrected_together_and_the_primary_one_not():
    """Six pairs that all have the same sign: p = 2 / 2^6 exactly."""
    better = [value + 0.1 + 0.01 * seed for seed, value in enumerate(BASE)]
    found = compare_figures(
        {
            "grpo": figures(BASE, area=BASE, entropy=BASE),
            "tr_grpo": figures(better, area=better, entropy=better),
            "other": figures(better, area=BASE, entropy=better),
        },
        "grpo",
        "tr_grpo",
    )
    primary = found["tr_grpo"]["final_accuracy"]
    assert primary.estimate.mean == pytest.approx(0.65)
    assert primary.difference.estimate.mean == pytest.approx(0.125)
    assert (primary.difference.pairs, primary.difference.test) == (6, PValue(2 / 64, None))
    # The area of two arms and the other's accuracy: three tests, two of them with the same p.
    assert found["tr_grpo"]["area"].difference.test == PValue(2 / 64, pytest.approx(3 * 2 / 64))
    assert found["other"]["final_accuracy"].difference.test == PValue(2 / 64, pytest.approx(3 * 2 / 64))
    assert found["other"]["area"].difference.test == PValue(1.0, 1.0)
    assert found["tr_grpo"]["entropy"].difference.test is None, "not among the tested outcomes"
    assert found["grpo"]["final_accuracy"].difference is None


def test_with_a_margin_equivalence_is_tested():
    near = [value + 0.001 * (-1) ** seed for seed, value in enumerate(BASE)]
    arms = {"grpo": figures(BASE), "near": figures(near), "far": figures([value + 0.1 for value in BASE])}
    found = compare_figures(arms, "grpo", "near", margin=0.02)
    assert found["near"]["final_accuracy"].difference.equivalence.p < 0.001
    assert found["near"]["final_accuracy"].difference.test.p > 0.5
    assert found["far"]["final_accuracy"].difference.equivalence == PValue(1.0, 1.0)
    assert compare_figures(arms, "grpo")["near"]["final_accuracy"].difference.equivalence is None


@pytest.mark.parametrize(
    ("value", "sign", "expected"),
    [
        (Estimate(0.5), "", "0.500"),
        (Estimate(0.0123, -0.5, 2.25), "+", "+0.012 [-0.500, +2.250]"),
        (Estimate(45.94, 44.6, 46.64), "", "45.9 [44.6, 46.6]"),
        (Estimate(-1.02e-5, -9.04e-5, 8.02e-5), "+", "-1.02e-05 [-9.04e-05, +8.02e-05]"),
        (Estimate(float("nan")), "", "not a number"),
    ],
)
def test_numbers_of_an_interval_have_the_same_decimals(value, sign, expected):
    assert interval_text(value, sign) == expected


VALIDATION = {0: (0.2, 0.4), 2: (0.6, 0.8), 4: (0.5, 0.5)}


def steps_of_two_sources():
    found = []
    for number in range(5):
        metrics = {}
        if number:
            metrics = {
                "actor/grad_norm": 2.0 ** (number % 2),
                "actor/entropy": 0.1 * number,
                "response_length/mean": 10 * number,
                "critic/acc/mean": 0.2 + 0.01 * number,
            }
        if number in VALIDATION:
            a, b = VALIDATION[number]
            metrics |= {"val-core/kk_2ppl/acc/mean@1": a, "val-core/kk_3ppl/acc/mean@1": b}
            metrics |= {"val-train/kk_2ppl/acc/mean@1": 0.9, "val-train/kk_3ppl/acc/mean@1": 0.7}
        found.append(Step(number, metrics))
    return found


def test_figures_of_one_source():
    figures = run_figures(steps_of_two_sources(), "val-core/kk_3ppl/acc/mean@1")
    assert figures == pytest.approx(
        {
            "final_accuracy": 0.5,
            "best_accuracy": 0.8,
            "area": (2 * 0.6 + 2 * 0.65) / 4,
            "train_accuracy": 0.225,
            "train_slope": 0.1,
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


def test_only_what_was_logged_has_a_figure():
    assert run_figures([Step(4, {"val-core/kk/acc/mean@1": 0.5})], None) == {"final_accuracy": 0.5}, (
        "one point, no curve"
    )
    assert run_figures([Step(1, {"actor/grad_norm": 0.5})], None) == {"grad_norm": 0.5}
    assert run_figures([], None) == {}
