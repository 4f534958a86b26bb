"""Names, users' own shapings, and messages."""

import dataclasses
import pickle

import pytest
import torch

from verl_trgrpo.core.shaping import (
    Shaping,
    Sigmoid,
    available_shapings,
    get_shaping,
    make_shaping,
    register_shaping,
    registry,
)


@pytest.fixture
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))


def cosine(probs, *, floor=0.5):
    """A user's function, also reachable as tests.core.shaping.test_registry.cosine."""
    return floor + (1 - floor) * (1 - torch.cos(torch.pi * probs)) / 2


def constant(probs):
    return torch.full_like(probs, 1.3)


def wrong_shape(probs):
    return probs.sum()


def negative(probs):
    return probs - 0.5


def in_place(probs):
    return probs.mul_(0.4).add_(1.0)


def hard_gate(probs):
    return (probs > 0.5).long() + 1


def broken(probs):
    raise RuntimeError("no such luck")


def test_built_ins_are_registered():
    expected = {"linear", "power", "sigmoid", "sigmoid_centered", "threshold", "uniform"}
    assert expected <= set(available_shapings())
    assert get_shaping("sigmoid") is Sigmoid


def test_unknown_name_lists_the_known_ones_and_guesses():
    with pytest.raises(ValueError, match=r"'sigmoit'.*Did you mean 'sigmoid'.*linear.*uniform"):
        get_shaping("sigmoit")


def test_duplicates_and_bad_names_are_refused(clean_registry):
    with pytest.raises(ValueError, match="already registered"):
        register_shaping("sigmoid")(cosine)
    assert register_shaping("sigmoid")(Sigmoid) is Sigmoid  # the same thing twice is a re-import, not a clash
    for name in ("", "my.shaping"):
        with pytest.raises(ValueError, match="non-empty and without dots"):
            register_shaping(name)


def test_a_registered_function_with_parameters(clean_registry):
    register_shaping("cosine")(cosine)
    weights = make_shaping("cosine", floor=0.2)(torch.tensor([0.0, 0.5, 1.0]))
    torch.testing.assert_close(weights, torch.tensor([0.2, 0.6, 1.0]))
    reversed_weights = make_shaping("cosine", reverse=True, floor=0.2)(torch.tensor([0.0, 0.5, 1.0]))
    torch.testing.assert_close(reversed_weights, torch.tensor([1.0, 0.6, 0.2]))
    assert make_shaping("cosine").bounds() == pytest.approx((0.5, 1.0))


def test_a_registered_class(clean_registry):
    @register_shaping("square")
    @dataclasses.dataclass(frozen=True)
    class Square(Shaping):
        scale: float = 1.0

        def weights(self, probs):
            return self.scale * probs**2

    torch.testing.assert_close(make_shaping("square", scale=2.0)(torch.tensor([0.5])), torch.tensor([0.5]))
    with pytest.raises(ValueError, match="same weight"):
        make_shaping("square", scale=0.0)


def test_an_import_path():
    shaping = make_shaping(f"{__name__}.cosine", floor=0.25)
    torch.testing.assert_close(shaping(torch.tensor([0.0, 1.0])), torch.tensor([0.25, 1.0]))
    assert make_shaping("torch.square")(torch.tensor([0.5])).item() == 0.25


@pytest.mark.parametrize(
    ("function", "complaint"),
    [("constant", "same weight 1.3"), ("wrong_shape", "one weight for each"), ("negative", "not negative"),
     ("broken", "RuntimeError: no such luck"), ("in_place", "changes the probabilities")],
)  # fmt: skip
def test_users_functions_that_break_the_contract(function, complaint):
    with pytest.raises(ValueError, match=complaint):
        make_shaping(f"{__name__}.{function}")


@pytest.mark.parametrize(
    ("name", "parameters", "complaint"),
    [
        ("no_such_package.module.fn", {}, "cannot be imported"),
        ("math.nope", {}, "cannot be imported"),
        ("math.pi", {}, "not a callable"),
        ("collections.OrderedDict", {}, "does not derive from Shaping"),
        ("linear", {"tau": 3.0}, r"no parameter tau; it takes alpha"),
        ("uniform", {"alpha": 1.0}, r"no parameter alpha; it takes no parameters"),
        ("sigmoid", {"reverse": "yes"}, "not a boolean"),
    ],
)
def test_what_cannot_be_built_says_why(name, parameters, complaint):
    with pytest.raises(ValueError, match=complaint):
        make_shaping(name, **parameters)


def test_null_means_the_default():
    assert make_shaping("linear", alpha=0.3, tau=None, mu=None) == make_shaping("linear", alpha=0.3)


@pytest.mark.parametrize("name", ["sigmoid", "uniform", f"{__name__}.cosine"])
def test_shapings_travel_to_workers(name):
    shaping = make_shaping(name)
    probs = torch.linspace(0, 1, 11)
    assert torch.equal(pickle.loads(pickle.dumps(shaping))(probs), shaping(probs))
