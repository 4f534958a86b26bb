"""The contract of a shaping: its inputs, users' own functions, and what is refused."""

import pickle

import pytest
import torch

from verl_trgrpo.core import Tokens, available_shapings, make_shaping, register_shaping, shaping, shapings
from verl_trgrpo.core.shaping import asks_for


@pytest.fixture
def clean_registry(monkeypatch):
    monkeypatch.setattr(shaping, "_REGISTRY", dict(shaping._REGISTRY))


def cosine(probs, *, floor=0.5):
    """A user's function, also reachable as tests.core.test_shaping.cosine."""
    return floor + (1 - floor) * (1 - torch.cos(torch.pi * probs)) / 2


def everything(
    probs, old_probs, log_prob, old_log_prob, advantages, entropy, response_mask, positions, ref_log_prob, success_rate,
    *, factor=1.0,
):  # fmt: skip
    assert response_mask.dtype == torch.bool
    assert not any(x.requires_grad for x in (probs, log_prob))
    torch.testing.assert_close(log_prob.exp(), probs)
    torch.testing.assert_close(old_log_prob.exp(), old_probs)
    return factor * (
        probs + old_probs + advantages.abs() + entropy.abs() + positions + ref_log_prob.exp() + success_rate
    )


def stapo(probs, entropy, advantages, *, threshold=0.01):
    return 1 - ((probs < threshold) & (entropy < threshold) & (advantages > 0)).long()


def constant(probs):
    return torch.full_like(probs, 1.3)


def one_number(probs):
    return probs.sum()


def negative(probs):
    return probs - 0.5


def infinite_at_one_half(probs):
    return torch.where(probs == 0.5, torch.inf, probs)


def in_place(probs):
    return probs.mul_(0.4).add_(1.0)


def unknown_input(probs, logits):
    return probs


def positional_parameter(probs, floor=0.5):
    return probs.clamp(min=floor)


def negative_advantages(advantages):
    return advantages


def batch(given=("entropy", "ref_log_prob", "success_rate")):
    """Two responses, of three tokens and of one; NaN stands outside the mask."""
    nan = float("nan")
    more = {
        "entropy": torch.tensor([[0.001, 0.5, 0.001], [0.001, nan, nan]]),
        "ref_log_prob": torch.tensor([[0.1, 0.0, 0.7], [0.4, nan, nan]]).log(),
        "success_rate": torch.tensor([[0.25, 0.25, 0.25], [0.75, nan, nan]]),
    }
    return Tokens.of_batch(
        torch.tensor([[0.005, 0.3, 0.8], [0.001, nan, nan]]).log().requires_grad_(),
        old_log_prob=torch.tensor([[0.5, 0.2, 0.9], [0.3, nan, nan]]).log(),
        advantages=torch.tensor([[1.0, 1.0, 1.0], [-1.0, nan, nan]]),
        response_mask=torch.tensor([[1, 1, 1], [1, 0, 0]]),
        **{name: more[name] for name in given},
    )


def test_inputs_come_by_name():
    """p + p_old + |A| + H + position + p_ref + success rate, doubled; weights outside the mask are 1."""
    weights = make_shaping(f"{__name__}.everything", factor=2.0).weigh(batch())
    expected = [[2 * (0.005 + 0.5 + 1 + 0.001 + 0.1 + 0.25), 2 * (0.3 + 0.2 + 1 + 0.5 + 1 + 0.25),
                 2 * (0.8 + 0.9 + 1 + 0.001 + 2 + 0.7 + 0.25)],
                [2 * (0.001 + 0.3 + 1 + 0.001 + 0.4 + 0.75), 1.0, 1.0]]  # fmt: skip
    torch.testing.assert_close(weights, torch.tensor(expected))


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [("entropy", "calculate_entropy=true"), ("ref_log_prob", "use_kl_loss=true"), ("success_rate", "trgrpo_trainer")],
)
def test_an_input_that_is_missing_is_named_with_the_remedy(missing, remedy):
    given = {"entropy", "ref_log_prob", "success_rate"} - {missing}
    assert asks_for(missing, f"{__name__}.everything")
    assert not asks_for(missing, "sigmoid") and not asks_for(missing, "nosuch")
    with pytest.raises(ValueError, match=f"takes {missing}.*{remedy}"):
        make_shaping(f"{__name__}.everything").weigh(batch(given))


def test_a_registered_function_with_parameters(clean_registry):
    assert register_shaping("cosine", {"floor": "[0, 1)"})(cosine) is cosine
    assert "cosine" in available_shapings()
    weights = make_shaping("cosine", reverse=True, floor=0.2)(torch.tensor([0.0, 0.5, 1.0]))
    torch.testing.assert_close(weights, torch.tensor([1.0, 0.6, 0.2]))
    assert make_shaping("cosine").bounds == pytest.approx((0.5, 1.0))
    with pytest.raises(ValueError, match=r"floor=1 is out of range; give a number in \[0, 1\)"):
        make_shaping("cosine", floor=1)
    with pytest.raises(ValueError, match=r"flor; did you mean floor.*shaping=custom beside shaping.name=cosine"):
        make_shaping("cosine", flor=0.2)  # registered, but not a word of the configuration


def test_duplicates_and_bad_names_are_refused(clean_registry):
    with pytest.raises(ValueError, match="already registered"):
        register_shaping("sigmoid")(cosine)
    assert register_shaping("sigmoid")(shapings.sigmoid) is shapings.sigmoid  # the same thing twice is a re-import
    for name in ("", "my.shaping"):
        with pytest.raises(ValueError, match="non-empty and without dots"):
            register_shaping(name)


def test_a_function_that_is_defined_again_replaces_itself(clean_registry):
    """As the cell of a notebook does that is changed and run again."""
    for floor in (0.25, 0.75):

        @register_shaping("mine")
        def mine(probs, *, floor=floor):
            return floor + (1 - floor) * probs

        assert make_shaping("mine").bounds == (floor, 1.0)


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        ("constant", "same weight 1.3"), ("one_number", "one weight for each"), ("negative", "the weight -0.5"),
        ("infinite_at_one_half", "the weight inf"), ("in_place", "changes its input"),
        ("unknown_input", "'logits'.*probs, old"), ("positional_parameter", r"'floor'.*after a \*"),
        ("negative_advantages", "the weight -1"),
    ],
)  # fmt: skip
def test_functions_that_break_the_contract(function, complaint):
    with pytest.raises(ValueError, match=complaint):
        make_shaping(f"{__name__}.{function}")


@pytest.mark.parametrize(
    ("name", "parameters", "complaint"),
    [
        ("sigmoit", {}, r"Did you mean 'sigmoid'.*linear.*uniform"),
        ("no_such_package.module.fn", {}, "cannot be imported"),
        ("math.nope", {}, "cannot be imported"),
        ("linear", {"tau": 3.0}, r"parameter tau.*alpha.*shaping=linear"),
        ("uniform", {"alpha": 1.0}, r"parameter alpha.*none"),
        ("sigmoid", {"reverse": "yes"}, "not a boolean"),
        ("top_entropy", {"reverse": True}, "not probs alone"),
    ],
)
def test_what_cannot_be_built_says_why(name, parameters, complaint):
    with pytest.raises(ValueError, match=complaint):
        make_shaping(name, **parameters)


@pytest.mark.parametrize("name", ["sigmoid", "uniform", f"{__name__}.cosine"])
def test_shapings_travel_to_workers(name):
    shaping = make_shaping(name)
    probs = torch.linspace(0, 1, 11)
    assert torch.equal(pickle.loads(pickle.dumps(shaping))(probs), shaping(probs))
