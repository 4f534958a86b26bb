"""Built-in shapings against closed forms evaluated with the standard library."""

import math

import pytest
import torch

from verl_trgrpo.core import Tokens, make_shaping

PROBS = [0.0, 1e-6, 0.1, 0.122, 0.25, 0.327, 0.4999, 0.5, 0.75, 1.0]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def clip(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def binary_entropy(p: float) -> float:
    return -sum(x * math.log(x) for x in (p, 1 - p) if x > 0)


CLOSED_FORMS = {
    "sigmoid": ({}, lambda p: clip(2.0 * (sigmoid(9.0 * p) - 0.25), 1.0, 1.4)),
    "sigmoid-other": (
        {"alpha": 3.0, "tau": 4.0, "mu": 0.5, "lower": 0.2, "upper": 1.1},
        lambda p: clip(3.0 * (sigmoid(4.0 * p) - 0.5), 0.2, 1.1),
    ),
    "sigmoid_centered": ({}, lambda p: clip(2.0 * sigmoid(9.0 * (p - 0.25)), 1.0, 1.4)),
    "sigmoid_centered-both": (
        {"alpha": 2.0, "tau": 5.0, "mu": 0.4, "lower": 0.0, "upper": 2.0},
        lambda p: 2.0 * sigmoid(5.0 * (p - 0.4)),
    ),
    "linear": ({}, lambda p: 0.2 * p + 0.8),
    "linear-lopti": ({"alpha": 0.3}, lambda p: 0.3 * p + 0.7),
    "power": ({}, lambda p: max(math.sqrt(p), 0.1)),
    "power-steep": ({"gamma": 2.0, "lower": 0.0}, lambda p: p * p),
    "threshold": ({}, lambda p: 1.4 if p >= 0.5 else 1.0),
    "threshold-low": ({"eta": 0.25, "lower": 0.0, "upper": 1.0}, lambda p: 1.0 if p >= 0.25 else 0.0),
    "binary_entropy": ({}, lambda p: 1.0 + 0.4 * binary_entropy(p) / math.log(2)),
    "uniform": ({}, lambda p: 1.0),
}


@pytest.mark.parametrize("case", CLOSED_FORMS)
@pytest.mark.parametrize("reverse", [False, True])
def test_weights_follow_the_formula(case, reverse):
    parameters, formula = CLOSED_FORMS[case]
    if reverse and case == "binary_entropy":
        with pytest.raises(ValueError, match="reverse=true changes nothing"):
            make_shaping("binary_entropy", reverse=True)
        return
    shaping = make_shaping(case.split("-")[0], reverse=reverse, **parameters)
    probs = torch.tensor(PROBS, dtype=torch.float64)
    expected = [formula(1 - p if reverse else p) for p in PROBS]
    torch.testing.assert_close(shaping(probs), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


BAD_PARAMETERS = [
    ("sigmoid", {"tau": -1, "mu": 3, "lower": -2}, r"(?s)tau=-1.*mu=3.*lower=-2"),
    ("sigmoid", {"tau": float("nan")}, "tau=nan"),
    ("sigmoid", {"tau": "nine"}, "tau='nine'"),
    ("sigmoid", {"lower": 1.4}, "not below"),
    ("linear", {"alpha": 1.1}, "alpha=1.1"),
    ("power", {"gamma": 0}, "gamma=0"),
    ("threshold", {"eta": 0}, "eta=0"),
    ("taco", {"alpha": 0, "strength": 1.1}, r"(?s)alpha=0.*strength=1.1"),
    ("rsi", {"lower": 3.0}, "not below"),
    ("ipo_mask", {"eps": 1}, "eps=1"),
    ("fipo", {"half_life": 0, "max_ratio": 1, "safe_ratio": 0}, r"(?s)half_life=0.*max_ratio=1.*safe_ratio=0"),
    ("fipo", {"lower": 1.2}, "not below"),
    (
        "stare",
        {"share": 0, "positive": 0.9, "negative": 1.1, "target_entropy": 0},
        r"(?s)share=0.*positive=0.9.*negative=1.1.*target",
    ),
    ("gtpo", {"beta": 0}, "beta=0"),
    ("random_subset", {"seed": 1.5}, "random_subset.*seed=1.5"),
    ("random_subset", {"seed": True}, "random_subset.*seed=True"),
]


@pytest.mark.parametrize(("name", "parameters", "complaint"), BAD_PARAMETERS)
def test_bad_parameters_are_refused(name, parameters, complaint):
    with pytest.raises(ValueError, match=complaint):
        make_shaping(name, **parameters)


CONSTANT = [
    {"tau": 1 / 9},  # the default constants with tau as a divisor
    {"lower": 1.6, "upper": 2.0},
    {"name": "sigmoid_centered", "tau": 1e-9},
    {"name": "power", "lower": 0.9999999},
]


@pytest.mark.parametrize("parameters", CONSTANT)
def test_constant_weights_are_refused_with_the_remedy(parameters):
    with pytest.raises(ValueError, match=r"same weight .* inverse temperature .*uniform"):
        make_shaping(**parameters)


def tokens(**columns):
    """One response of tokens whose figures are given; the last one is outside the mask."""
    given = {name: torch.tensor([[*values, 9.0]], dtype=torch.float64) for name, values in columns.items()}
    n = len(next(iter(columns.values())))
    mask = torch.tensor([[1] * n + [0]])
    log_prob = given.get("log_prob", torch.full((1, n + 1), -0.5, dtype=torch.float64))
    advantages = given.get("advantages", torch.ones(1, n + 1, dtype=torch.float64))
    old_log_prob, entropy = given.get("old_log_prob", log_prob), given.get("entropy")
    return Tokens.of_batch(
        log_prob, old_log_prob=old_log_prob, advantages=advantages, response_mask=mask, entropy=entropy
    )


def test_stapo_leaves_out_what_is_rare_sure_and_rewarded():
    rare, usual = math.log(0.0019), math.log(0.0021)
    given = {"log_prob": [rare, rare, rare, usual, rare], "advantages": [1, -1, 1, 1, 0.1]}
    batch = tokens(entropy=[0.5, 0.6, 2.0, 0.4, 0.7], **given)
    # The quantile 0.8 of five entropies, from Algorithm 1's published constants, is between the two highest.
    assert make_shaping("stapo").weigh(batch).tolist() == [[0, 1, 1, 1, 0, 1]]
    assert make_shaping("stapo", max_prob=0.1).weigh(batch).tolist() == [[0, 1, 1, 0, 0, 1]]
    assert make_shaping("stapo", entropy_quantile=0.3).weigh(batch).tolist() == [[0, 1, 1, 1, 1, 1]]
    # Relative: the same tokens at entropies a hundred times smaller.
    sure = tokens(entropy=[0.005, 0.006, 0.02, 0.004, 0.007], **given)
    assert make_shaping("stapo").weigh(sure).tolist() == make_shaping("stapo").weigh(batch).tolist()


@pytest.mark.parametrize("quantile", [0.2, 0.8, 0.95])
def test_the_entropy_quantile_of_stapo_is_that_of_the_generated_tokens(quantile):
    generator = torch.Generator().manual_seed(0)
    entropy, ones = torch.rand(4, 25, generator=generator), torch.ones(4, 25)
    mask = torch.rand(4, 25, generator=generator) < 0.7
    batch = Tokens.of_batch(
        -8 * ones, old_log_prob=-8 * ones, advantages=ones, response_mask=mask, entropy=entropy.where(mask, 9.0)
    )
    kept = make_shaping("stapo", entropy_quantile=quantile).weigh(batch)
    values = sorted(entropy[mask].tolist())
    place = quantile * (len(values) - 1)
    low = int(place)
    bound = values[low] + (place - low) * (values[low + 1] - values[low])
    assert kept.tolist() == [
        [0.0 if inside and x < bound else 1.0 for x, inside in zip(*row, strict=True)]
        for row in zip(entropy.tolist(), mask.tolist(), strict=True)
    ]


def test_top_entropy_keeps_a_rounded_up_share_and_all_ties():
    def kept(entropy, share):
        return make_shaping("top_entropy", share=share).weigh(tokens(entropy=entropy)).tolist()[0][:-1]

    assert kept(list(range(30)), 0.1) == [0] * 27 + [1] * 3
    assert kept([3, 1, 2, 0.5, 0.1], 0.3) == [1, 0, 1, 0, 0]
    assert kept([2, 1, 2, 2, 0.1], 0.2) == [1, 0, 1, 1, 0]
    zeros = torch.zeros(1, 3)
    empty = Tokens.of_batch(zeros, old_log_prob=zeros, advantages=zeros, response_mask=zeros, entropy=zeros)
    assert make_shaping("top_entropy").weigh(empty).tolist() == [[1, 1, 1]]


def cppo(probs, old_probs, advantage, delta, min_weight, prefix_delta):
    """CPPO's mask of one response, token by token."""
    moved = [abs(p - q) for p, q in zip(probs, old_probs, strict=True)]
    ordered, place = sorted(moved), 0.9 * (len(moved) - 1)
    low = int(place)
    quantile = ordered[low] + (place - low) * (ordered[min(low + 1, len(moved) - 1)] - ordered[low])
    budget = min(max(quantile, prefix_delta), 2 * prefix_delta)
    kept, weights, drifts = [], 0.0, 0.0
    for t, (change, p, q) in enumerate(zip(moved, probs, old_probs, strict=True)):
        weight = 1 - (1 - min_weight) * t / max(len(moved) - 1, 1)
        bound = min(delta, delta + budget * weights - drifts)
        kept.append(float(advantage * (p / q - 1) <= 0 or weight * change <= bound))
        weights, drifts = weights + weight, drifts + weight * change
    return kept


def test_cppo_leaves_out_what_drifts_too_far_for_its_place():
    def weights(probs, old_probs, advantage, **options):
        p, q = ([math.log(x) for x in values] for values in (probs, old_probs))
        batch = tokens(log_prob=p, old_log_prob=q, advantages=[advantage] * len(p))
        return make_shaping("cppo", **options).weigh(batch).tolist()[0][:-1]

    # Changes 0.1, 0.25, 0.05 count 0.1, 0.225, 0.04; the bounds are 0.15, 0.15 + 0.04 - 0.1, 0.15 + 0.076 - 0.325.
    assert weights([0.4, 0.55, 0.35], [0.3] * 3, 1.0) == [1, 0, 0]
    assert weights([0.4, 0.55, 0.35], [0.3] * 3, -1.0) == [1, 1, 1], "the update brings p back"
    assert weights([0.2, 0.05, 0.25], [0.3] * 3, -1.0) == [1, 0, 0]
    # The first token has the whole bound of the authors' dense models, 0.15, and not that of their mixture of experts, 0.2.
    assert [weights([p], [0.3], 1.0) for p in (0.44, 0.46)] == [[1], [0]] and weights(
        [0.46], [0.3], 1.0, delta=0.2
    ) == [1]
    generator, seen = torch.Generator().manual_seed(0), []
    for _ in range(30):
        old = torch.rand(12, generator=generator, dtype=torch.double).clamp(0.05, 0.95)
        new = (old + 0.12 * torch.randn(12, generator=generator, dtype=torch.double)).clamp(0.01, 0.99)
        for advantage, options in ((1.3, (0.2, 0.8, 0.02)), (-0.4, (0.3, 1.0, 0.0)), (1.0, (0.1, 0.5, 0.1))):
            named = dict(zip(("delta", "min_weight", "prefix_delta"), options, strict=True))
            found = weights(new.tolist(), old.tolist(), advantage, **named)
            assert found == cppo(new.tolist(), old.tolist(), advantage, *options)
            seen += found
    assert 0.2 < sum(seen) / len(seen) < 0.9


def test_cppo_counts_generated_tokens_alone_and_each_response_for_itself():
    log_prob, old = torch.tensor([[0.4, 0.9, 0.55, 0.35], [0.2, 0.3, 0.9, 0.9]]).log(), torch.full((2, 4), 0.3).log()
    mask = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0]])  # a gap of observed tokens; no tokens at all
    batch = Tokens.of_batch(log_prob, old_log_prob=old, advantages=torch.ones(2, 4), response_mask=mask)
    assert make_shaping("cppo").weigh(batch).tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]


def weights_of(name, batch, **options):
    """The weights of the one response of `batch`, without its last, masked token."""
    return make_shaping(name, **options).weigh(batch).tolist()[0][:-1]


def test_taco_lowers_the_credit_of_the_tail():
    """e^-6 at entropy 1 has the risk 6 - 1 + log 0.01 = 0.39483 and weighs 1 - 0.9 (1 - e^-0.39483)."""
    given = tokens(
        log_prob=[-6.0, -6.0, -6.0, -5.0, -0.1, -40.0],
        entropy=[1.0, 1.0, 2.0, 0.1, 0.0, 0.0],
        advantages=[1, -1, 1, 2, 1, 1],
    )
    risks = [6 - 1 + math.log(0.01), 0, 0, 5 - 0.1 + math.log(0.01), 0, 40 + math.log(0.01)]
    assert weights_of("taco", given) == pytest.approx([1 - 0.9 * (1 - math.exp(-risk)) for risk in risks], rel=1e-12)
    assert weights_of("taco", given)[0] == pytest.approx(0.1 + 90 * math.exp(-5), rel=1e-12)
    soft = weights_of("taco", given, alpha=0.02, strength=0.5)
    assert soft[2] == 1 - 0.5 * (1 - math.exp(-(6 - 2 + math.log(0.02)))) and soft[-1] == pytest.approx(0.5)


def test_rsi_keeps_what_is_as_surprising_as_its_position():
    given = tokens(log_prob=[-1.0, -0.05, -0.099, -3.5, -2.9, 0.0, -1.0], entropy=[1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    assert weights_of("rsi", given) == [1, 0, 0, 0, 1, 0, 0]
    assert weights_of("rsi", given, lower=0.05 / 2, upper=4.0) == [1, 1, 1, 1, 1, 0, 0]
    assert weights_of("rsi", given, lower=0.0, upper=math.inf) == [1] * 7


def test_the_ipo_mask_is_symmetric():
    new, old = [0.9, 0.9, 0.1, 0.1, 0.5], [0.65, 0.55, 0.35, 0.45, 0.5]
    given = tokens(
        log_prob=list(map(math.log, new)), old_log_prob=list(map(math.log, old)), advantages=[1, -1, 1, -1, 1]
    )
    assert weights_of("ipo_mask", given) == [1, 0, 1, 0, 1]
    assert weights_of("ipo_mask", given, eps=0.1) == [0, 0, 0, 0, 1]


def fipo(log_ratios, counted, advantage, half_life, lower, upper, max_ratio, safe_ratio):
    """FIPO's weights of one response, sum by sum."""
    weights = []
    for t, own in enumerate(log_ratios):
        future = sum(
            2 ** (-(k - t) / half_life) * x
            for k, x in enumerate(log_ratios)
            if k >= t and counted[k] and math.exp(x) <= max_ratio
        )
        weight = clip(math.exp(min(future, 100.0)), lower, upper)
        if advantage < 0 and math.exp(own) > safe_ratio:
            weight = clip(weight, 0.8, 1.0)
        weights.append(weight if counted[t] else 1.0)
    return weights


@pytest.mark.parametrize("length", [5, 64, 65, 300])
@pytest.mark.parametrize(
    "options", [(32.0, 1.0, 1.2, 10.0, 4.0), (2.0, 0.5, 3.0, 1.5, 1.1), (500.0, 0.1, 9.0, math.inf, math.inf)]
)
def test_fipo_weighs_by_what_follows_in_its_own_response(length, options):
    generator = torch.Generator().manual_seed(length)
    old = -1 - 3 * torch.rand(4, length, generator=generator, dtype=torch.double)
    new = (old + 0.4 * torch.randn(4, length, generator=generator, dtype=torch.double)).clamp(max=0)
    advantages = torch.tensor([1.0, -1.0, 0.5, -2.0], dtype=torch.double)[:, None].expand(4, length)
    mask = torch.rand(4, length, generator=generator) < 0.9  # gaps of observed tokens
    names = ("half_life", "lower", "upper", "max_ratio", "safe_ratio")
    shaping = make_shaping("fipo", **dict(zip(names, options, strict=True)))
    rows = [slice(None), slice(0, 1), slice(1, 4)]
    found = [
        shaping.weigh(Tokens.of_batch(new[i], old_log_prob=old[i], advantages=advantages[i], response_mask=mask[i]))
        for i in rows
    ]
    expected = [fipo((new - old)[i].tolist(), mask[i].tolist(), advantages[i, 0].item(), *options) for i in range(4)]
    torch.testing.assert_close(found[0], torch.tensor(expected, dtype=torch.double), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(torch.cat(found[1:]), found[0])  # micro-batches make no difference
    assert length < 100 or len(found[0].unique()) > 10


@pytest.mark.parametrize("half_life", [2.0, 32.0, 5000.0])
def test_the_sums_of_fipo_reach_through_a_response_of_any_length(half_life):
    """Longer than blocks of blocks; by the recurrence F_t = x_t + d F_{t+1}."""
    generator = torch.Generator().manual_seed(0)
    old = -1 - torch.rand(1, 9001, generator=generator, dtype=torch.double)
    new = old + 0.01 * torch.randn(1, 9001, generator=generator, dtype=torch.double)
    ones = torch.ones_like(old)
    shaping = make_shaping("fipo", half_life=half_life, lower=1e-9, upper=1e9)
    found = shaping.weigh(Tokens.of_batch(new, old_log_prob=old, advantages=ones, response_mask=ones))
    expected, future = [], 0.0
    for x in reversed((new - old)[0].tolist()):
        future = x + 2 ** (-1 / half_life) * future
        expected.append(math.exp(future))
    torch.testing.assert_close(found[0], torch.tensor(expected[::-1], dtype=torch.double), rtol=1e-9, atol=0)


def test_autocast_of_a_training_in_bfloat16_does_not_round_the_sums_of_fipo():
    generator = torch.Generator().manual_seed(0)
    old = -1 - 3 * torch.rand(4, 300, generator=generator)
    new = old + 0.1 * torch.randn(4, 300, generator=generator)
    given = Tokens.of_batch(new, old_log_prob=old, advantages=torch.ones(4, 300), response_mask=torch.ones(4, 300))
    shaping = make_shaping("fipo", lower=0.1, upper=9.0)
    expected = shaping.weigh(given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(shaping.weigh(given), expected)


def test_stare_weighs_the_rarest_tokens_of_each_sign_while_the_entropy_is_low():
    log_prob = [-0.1 * i for i in range(20)]
    given = {"log_prob": log_prob, "advantages": [1] * 11 + [-1] * 8 + [0]}
    low, high = tokens(**given, entropy=[0.29] * 20), tokens(**given, entropy=[0.31] * 20)
    # ceil(0.1 * 11) = 2 of the good ones, the rarest of which is token 10; one of the bad ones, token 18.
    assert weights_of("stare", low) == [1.0] * 9 + [1.1] * 2 + [1.0] * 9
    assert weights_of("stare", low, negative=0.9) == [1.0] * 9 + [1.1] * 2 + [1.0] * 7 + [0.9, 1.0]
    assert weights_of("stare", low, share=1.0, positive=1.5) == [1.5] * 11 + [1.0] * 9
    assert weights_of("stare", high) == [1.0] * 20
    assert weights_of("stare", high, target_entropy=0.32)[10] == 1.1
    assert weights_of("stare", tokens(log_prob=[-1.0, -2.0], advantages=[0, 0], entropy=[0, 0])) == [1, 1]


def test_gtpo_weighs_by_the_entropy_relative_to_the_mean():
    given = tokens(entropy=[0.0, 0.5, 1.0, 2.5])
    assert weights_of("gtpo", given) == pytest.approx([0.9, 0.95, 1.0, 1.15])
    assert weights_of("gtpo", given, beta=2.0) == pytest.approx([0.0, 0.0, 1.0, 4.0])
    assert weights_of("gtpo", tokens(entropy=[0.0, 0.0])) == [1, 1]


def test_a_random_subset_has_its_share_and_does_not_depend_on_the_batch():
    generator = torch.Generator().manual_seed(0)
    log_prob = -torch.rand(64, 200, generator=generator, dtype=torch.float64)

    def of(rows):
        x, ones = log_prob[rows], torch.ones(64, 200)[rows]
        return Tokens.of_batch(x, old_log_prob=x, advantages=ones, response_mask=ones)

    for share in (0.1, 0.5, 0.9):
        kept = make_shaping("random_subset", share=share).weigh(of(slice(None)))
        assert set(kept.unique().tolist()) == {0.0, 1.0}
        assert kept.mean().item() == pytest.approx(share, abs=0.015)
        by_position = kept.mean(0)
        assert 0.5 * share < by_position.min() + 0.1 and by_position.max() < share + 0.3
        parts = [make_shaping("random_subset", share=share).weigh(of(slice(i, i + 16))) for i in range(0, 64, 16)]
        assert torch.equal(torch.cat(parts), kept)
    for seed in (1234, -1, 2**63):
        large = make_shaping("random_subset", seed=seed).weigh(of(slice(None)))
        assert large.mean() == pytest.approx(0.5, abs=0.1)
    other = make_shaping("random_subset", seed=1).weigh(of(slice(None)))
    assert 0.4 < (other == make_shaping("random_subset").weigh(of(slice(None)))).double().mean() < 0.6
