"""What holds for every shaping with any parameters: formula, bounds, order, and what is refused."""

import math

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from verl_trgrpo.core.shaping import (
    BinaryEntropy,
    Linear,
    Power,
    Sigmoid,
    SigmoidCentered,
    Threshold,
    Uniform,
    make_shaping,
)
from verl_trgrpo.core.shaping.base import check_shaping

PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def clip(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


FORMULAS = {
    "sigmoid": lambda p, alpha, tau, mu, lower, upper: clip(alpha * (sigmoid(tau * p) - mu), lower, upper),
    "sigmoid_centered": lambda p, alpha, tau, mu, lower, upper: clip(alpha * sigmoid(tau * (p - mu)), lower, upper),
    "linear": lambda p, alpha: alpha * p + 1 - alpha,
    "power": lambda p, gamma, lower: max(p**gamma, lower),
    "threshold": lambda p, eta, lower, upper: upper if p >= eta else lower,
}
UNIT = st.floats(0.0, 1.0)
OPEN_UNIT = st.floats(0.01, 1.0)
BOUNDS = st.tuples(st.floats(0.0, 2.0), st.floats(0.01, 2.0)).map(lambda x: {"lower": x[0], "upper": x[0] + x[1]})


@st.composite
def shapings(draw):
    """(name, parameters, shaping); parameters for which the weights are constant are left out."""
    name = draw(st.sampled_from(sorted(FORMULAS)))
    parameters = draw(
        {
            "linear": st.fixed_dictionaries({"alpha": OPEN_UNIT}),
            "power": st.fixed_dictionaries({"gamma": st.floats(0.05, 5.0), "lower": st.floats(0.0, 0.9)}),
            "threshold": st.builds(lambda bounds, eta: bounds | {"eta": eta}, BOUNDS, OPEN_UNIT),
        }.get(
            name,
            st.builds(
                lambda bounds, alpha, tau, mu: bounds | {"alpha": alpha, "tau": tau, "mu": mu},
                BOUNDS, st.floats(0.05, 5.0), st.floats(0.05, 30.0), UNIT,
            ),
        )
    )  # fmt: skip
    ends = [FORMULAS[name](p, **parameters) for p in (0.0, 1.0)]
    assume(abs(ends[1] - ends[0]) > 1e-3)
    return name, parameters, make_shaping(name, reverse=draw(st.booleans()), **parameters)


PROBS = st.lists(UNIT, min_size=1, max_size=20)


@PROPERTY
@given(shapings(), PROBS)
def test_weights_follow_the_formula_for_any_parameters(case, probs):
    name, parameters, shaping = case
    weights = shaping(torch.tensor(probs, dtype=torch.float64)).tolist()
    expected = [FORMULAS[name](1 - p if shaping.reverse else p, **parameters) for p in probs]
    assert weights == pytest.approx(expected, rel=1e-9, abs=1e-12)


@PROPERTY
@given(shapings(), PROBS, st.sampled_from([torch.float64, torch.float32, torch.bfloat16]))
def test_weights_are_monotone_and_within_the_bounds(case, probs, dtype):
    _, _, shaping = case
    ordered = torch.tensor(sorted(probs), dtype=dtype)
    weights = shaping(ordered)
    steps = -weights.diff() if shaping.reverse else weights.diff()
    tolerance = 4 * torch.finfo(dtype).eps * max(1.0, shaping.bounds()[1])
    assert (steps >= -tolerance).all()
    lower, upper = shaping.bounds()
    assert 0 <= lower < upper
    assert (weights >= lower - tolerance).all() and (weights <= upper + tolerance).all()


@PROPERTY
@given(shapings(), PROBS, st.data())
def test_each_weight_depends_on_its_own_probability_only(case, probs, data):
    _, _, shaping = case
    order = data.draw(st.permutations(range(len(probs))))
    tensor = torch.tensor(probs, dtype=torch.float64)
    torch.testing.assert_close(shaping(tensor[order]), shaping(tensor)[order], rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(shaping(tensor.reshape(1, -1, 1)).flatten(), shaping(tensor), rtol=1e-14, atol=1e-15)


INF = math.inf
# The interval of each parameter, as the messages print it; "(" leaves the end out.
RANGES = [
    *((name, "alpha", "(0, inf)") for name in ("sigmoid", "sigmoid_centered")),
    *((name, "tau", "(0, inf)") for name in ("sigmoid", "sigmoid_centered")),
    *((name, "mu", "[0, 1]") for name in ("sigmoid", "sigmoid_centered")),
    *((name, "lower", "[0, inf)") for name in ("sigmoid", "sigmoid_centered", "threshold")),
    *((name, "upper", "[0, inf)") for name in ("sigmoid", "sigmoid_centered", "threshold")),
    ("linear", "alpha", "(0, 1]"),
    ("power", "gamma", "(0, inf)"),
    ("power", "lower", "[0, 1]"),
    ("threshold", "eta", "(0, 1]"),
]


def complaint(name: str, parameter: str, value: object) -> str:
    try:
        make_shaping(name, **{parameter: value})
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("name", "parameter", "interval"), RANGES)
def test_parameters_are_taken_in_their_interval_and_named_outside(name, parameter, interval):
    low, high = (float(end) for end in interval[1:-1].split(", "))
    inside = [low + 0.01, high - 0.01 if high < INF else 1e6, *([low] if interval[0] == "[" else [])]
    outside = [low - 0.01, INF, -INF, math.nan, *([low] if interval[0] == "(" else [])]
    if high < INF:
        inside.append(high)
        outside.append(high + 0.01)
    for value in inside:  # other complaints (constant weights, lower above upper) are another matter
        assert "out of range" not in complaint(name, parameter, value), value
    for value in outside:
        assert f"{parameter}={value!r} is out of range; give a number in {interval}" in complaint(
            name, parameter, value
        )
    for value in ("1", True, [1.0]):
        assert f"{parameter}={value!r} is not a number; give one in {interval}" in complaint(name, parameter, value)


def test_bounds_are_those_of_the_parameters():
    assert Sigmoid(lower=0.5, upper=2.5).bounds() == (0.5, 2.5)
    assert SigmoidCentered(lower=0.5, upper=2.5).bounds() == (0.5, 2.5)
    assert Linear(alpha=0.25).bounds() == (0.75, 1.0)
    assert Power(lower=0.3).bounds() == (0.3, 1.0)
    assert Threshold(lower=0.3, upper=0.6).bounds() == (0.3, 0.6)
    assert BinaryEntropy(lower=0.3, upper=0.6).bounds() == (0.3, 0.6)
    assert Uniform().bounds() == (1.0, 1.0)


def test_binary_entropy_names_bounds_that_are_out_of_range():
    with pytest.raises(ValueError, match=r"lower=-0\.5 is out of range.*\[0, inf\)"):
        BinaryEntropy(lower=-0.5, upper=1.4)
    with pytest.raises(ValueError, match=r"upper=-0\.5 is out of range.*\[0, inf\)"):
        BinaryEntropy(lower=0.0, upper=-0.5)
    assert BinaryEntropy(lower=0.0)(torch.tensor([0.0, 0.5, 1.0])).tolist() == pytest.approx([0.0, 1.4, 0.0])


def test_binary_entropy_lies_between_1_and_1_4_unless_told_otherwise():
    assert BinaryEntropy()(torch.tensor([0.0, 0.5, 1.0])).tolist() == pytest.approx([1.0, 1.4, 1.0])


def test_constant_weights_are_refused_unless_they_are_asked_for():
    with pytest.raises(ValueError, match="gives the same weight 1 to every probability"):
        check_shaping(torch.ones_like, "ones")
    check_shaping(torch.ones_like, "ones", may_be_constant=True)


@pytest.mark.parametrize("shaping", [Sigmoid, SigmoidCentered, Linear, Power, Threshold])
def test_a_shaping_is_not_reversed_unless_asked(shaping):
    rare, common = shaping()(torch.tensor([0.01, 0.99])).tolist()
    assert rare < common
    rare, common = shaping(reverse=True)(torch.tensor([0.01, 0.99])).tolist()
    assert rare > common


def test_a_floor_of_one_is_refused_for_what_it_is():
    with pytest.raises(ValueError, match=r"^Power: lower=1 leaves no room below the largest weight 1"):
        Power(lower=1)
    with pytest.raises(ValueError, match="same weight"):
        Power(lower=1 - 1e-7)
    with pytest.raises(ValueError, match=r"^Power: gamma=0 is out of range[^;]*;[^;]*$"):
        Power(gamma=0, lower=1)  # an order of parameters is complained about once they are numbers in range


@pytest.mark.parametrize("shaping", [Sigmoid, SigmoidCentered, Threshold])
def test_bounds_in_the_wrong_order_are_both_named(shaping):
    with pytest.raises(ValueError, match=r"lower=2\.0 is not below upper=0\.5; "):
        shaping(lower=2.0, upper=0.5)


@pytest.mark.parametrize("spread", [0.9e-6, 1.1e-6])
def test_the_smallest_spread_that_counts_is_a_millionth(spread):
    """Weights closer together than a bf16 loss can tell do nothing."""
    gate = {"lower": 0.0, "upper": spread}
    if spread < 1e-6:
        with pytest.raises(ValueError, match="same weight 0 "):
            make_shaping("threshold", **gate)
    else:
        assert make_shaping("threshold", **gate).bounds() == (0.0, spread)


def steps(probs, *, at=0.5, step_height=1.0):
    return (probs > at) * step_height


def anything(probs, **options):
    return probs + options.get("offset", 1.0)


def with_middle(probs):
    """Infinite at exactly one half, which a coarse or shifted grid misses."""
    return torch.where(probs == 0.5, torch.inf, probs)


def longer(probs):
    return torch.cat([probs, probs])


def number(probs):
    return 1.0


def test_functions_with_parameters_are_checked_by_name():
    with pytest.raises(ValueError, match=r"no parameter width; it takes at, step_height\. "):
        make_shaping(f"{__name__}.steps", width=2.0)
    assert make_shaping(f"{__name__}.steps", step_height=3.0).bounds() == (0.0, 3.0)
    assert make_shaping(f"{__name__}.anything", offset=2.0, unused=1).bounds() == (2.0, 3.0)


@pytest.mark.parametrize(
    ("function", "says"),
    [("with_middle", "weight inf"), ("longer", r"returned \(8194,\)"), ("number", "returned float")],
)
def test_functions_that_break_the_contract_at_one_point_or_in_length(function, says):
    with pytest.raises(ValueError, match=says):
        make_shaping(f"{__name__}.{function}")
