"""Chains of tokens: many seeds in one batch are each what one alone would be, and accuracy is exact."""

import json
import sys

import pytest
import torch
import yaml

from studies.chains import chains, run
from verl_trgrpo.core import ClipRange, TokenWeighting, compute_policy_loss, make_shaping

CHAIN = chains.Chain(fillers=4, right=0.3)
TRAINING = chains.Training("adam", passes=1, steps=2)
SEEDS = 3


@pytest.fixture(scope="module")
def start():
    return chains.start_policies(CHAIN, SEEDS, seed=1, steps=100)


@pytest.fixture(scope="module")
def batch(start):
    train, _ = chains.split_prompts(SEEDS, 2)
    generator = torch.Generator().manual_seed(3)
    return chains.sample_batch(start, chains.draw_prompts(train, 8, generator), 8, generator)


@pytest.mark.parametrize(
    ("arm", "normalize"), [("grpo", "none"), ("power", "none"), ("tr_grpo_token_mean", "token_mean")]
)
def test_every_seed_has_the_gradient_of_the_core_s_loss_of_its_own(start, batch, arm, normalize):
    """Off-policy, so that some tokens are clipped."""
    moved = [p + 0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(4)) for p in start]
    moved = [p.requires_grad_() for p in moved]
    together = torch.autograd.grad(chains.seeds_loss(moved, batch, chains.arm_weighting(arm)), moved)
    shaping, parameters, _ = chains.ARMS[arm]
    weighting = TokenWeighting(shaping=make_shaping(shaping, **parameters), normalize=normalize)
    for seed in range(SEEDS):
        log_probs = chains.token_log_probs(moved, batch)[seed].flatten(0, 1)
        given = {"old_log_prob": batch.log_probs, "advantages": batch.advantages}
        given = {name: tensor[seed].flatten(0, 1) for name, tensor in given.items()}
        mask = torch.ones_like(log_probs)
        found = compute_policy_loss(log_probs, response_mask=mask, weighting=weighting, clip=ClipRange(), **given)
        assert found.metrics["pg_clipfrac"] > 0.01
        for ours, own in zip(together, torch.autograd.grad(found.loss, moved), strict=True):
            torch.testing.assert_close(ours[seed], own[seed], rtol=1e-4, atol=1e-7)


def test_shuffled_weights_are_the_same_in_another_order_and_those_of_other_seeds_stay_apart():
    weights = torch.rand(2, 50)
    shuffled = chains.arm_weighting("tr_grpo_shuffled", seed=1).normalized(weights, torch.ones(2, 50, dtype=torch.bool))
    assert not torch.equal(shuffled, weights)
    assert torch.equal(shuffled.sort(-1).values, weights.sort(-1).values)


def enumerated_accuracy(parameters, seed, prompts):
    """The probability of a right chain, summed over all that the policy may decide, one prompt after the other."""
    first, shift, second, bias = (parameter[seed].double() for parameter in parameters)

    def probs(digits, position):
        inputs = torch.zeros(36, dtype=torch.double)
        inputs[[6 * place + digit for place, digit in digits.items()] + [24 + position]] = 1
        return ((inputs @ first + shift[0]).clamp(min=0) @ second + bias[0]).softmax(-1)

    total = 0.0
    for number in prompts.tolist():
        a, b, c = number // 36, number // 6 % 6, number % 6
        decided = probs({0: a, 1: b}, chains.FIRST)
        for r in range(6):
            answers = probs({2: c, 3: r}, chains.LAST)
            total += sum(decided[r] * answers[d] for d in range(6) if r == (a + b) % 6 and d == (r + c) % 6)
    return float(total / len(prompts))


def test_exact_accuracy_is_that_of_all_chains_enumerated_and_of_many_sampled(start):
    train, held_out = chains.split_prompts(SEEDS, 2)
    found = chains.sample_batch(start, train, 200, torch.Generator().manual_seed(5))
    r, answer = found.tokens[..., chains.FIRST], found.tokens[..., chains.LAST]
    a, b, c = train[..., None] // 36, train[..., None] // 6 % 6, train[..., None] % 6
    right = ((r == (a + b) % 6) & (answer == (r + c) % 6)).float()
    for prompts in (train, held_out):
        exact = chains.exact_accuracy(start, prompts)
        enumerated = [enumerated_accuracy(start, seed, own) for seed, own in enumerate(prompts)]
        assert exact.tolist() == pytest.approx(enumerated, abs=1e-6)
    exact = chains.exact_accuracy(start, train)
    assert right.mean((1, 2)).tolist() == pytest.approx(exact.tolist(), abs=4 * (0.25 / right[0].numel()) ** 0.5)
    assert torch.equal(found.advantages[..., 0] > 0, (right > 0) & (right.mean(-1, keepdim=True) < 1))


def test_the_start_has_the_probabilities_that_it_was_fitted_to():
    target = chains.start_distribution(CHAIN)
    torch.testing.assert_close(target.sum(-1), torch.ones(target.shape[:-1]))
    fitted = chains.start_policies(CHAIN, 1, seed=1)
    distance = (chains.policy_logits(fitted, torch.arange(chains.PROMPTS)[None]).softmax(-1) - target).abs().sum(-1) / 2
    assert distance[:, :, chains.FIRST].mean() < 0.1 and distance.mean() < 0.1


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_steps_are_those_of_torch_s_optimizer_with_each_seed_s_rate(start, optimizer):
    train, _ = chains.split_prompts(SEEDS, 2)
    training, rates = chains.Training(optimizer, passes=2, steps=2), torch.tensor([0.01, 0.02, 0.1])
    found = chains.train_policies(start, train, training, "tr_grpo", rates, seed=6)
    parameters = [p.clone().requires_grad_() for p in start]
    each = [[p.detach()[seed] for p in parameters] for seed in range(SEEDS)]
    kinds = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    optimizers = [kinds[optimizer](own, lr=rate.item()) for own, rate in zip(each, rates, strict=True)]
    of_prompts, of_samples = (torch.Generator().manual_seed(one) for one in (6, 6 + 10**6))
    weighting = chains.arm_weighting("tr_grpo")
    for _ in range(training.steps):
        batch = chains.sample_batch(parameters, chains.draw_prompts(train, 8, of_prompts), 8, of_samples)
        for part in chains.updates(batch, training):
            gradients = torch.autograd.grad(chains.seeds_loss(parameters, part, weighting), parameters)
            for seed in range(SEEDS):
                for own, gradient in zip(each[seed], gradients, strict=True):
                    own.grad = gradient[seed]
                optimizers[seed].step()
    for ours, theirs, before in zip(found, parameters, start, strict=True):
        # Adam turns the rounding error of a gradient of nearly 0 into a step.
        assert (ours - theirs).norm() < 0.01 * (theirs - before).norm()


def test_curvature_is_the_largest_eigenvalue_and_noise_costs_half_its_trace(start):
    """Of torch's Hessian; noise is small, so that second derivatives are enough, which have no kinks of relu far from 0."""
    train, _ = chains.split_prompts(SEEDS, 2)
    start = [start[0], start[1] + 10, *start[2:]]
    double, generator = [parameter.double() for parameter in start], torch.Generator().manual_seed(7)
    found = run.largest_curvature(start, train, generator, iterations=20)

    def loss(vector):
        parts = vector.split([parameter[0].numel() for parameter in double], -1)
        moved = [part.view(1, *parameter.shape[1:]) for part, parameter in zip(parts, double, strict=True)]
        return -chains.right_probs(moved)[0, train[0]].mean()

    whole = torch.cat([parameter[0].flatten() for parameter in double])
    hessian = torch.autograd.functional.hessian(loss, whole)
    assert float(found[0]) == pytest.approx(float(torch.linalg.eigvalsh(hessian)[-1]), rel=1e-3)
    sizes = [0.002 * p[0].norm() / p[0].numel() ** 0.5 * torch.ones(p[0].numel()) for p in double]
    noise = run.noise_loss(double, train, generator, size=0.002, draws=300)
    assert float(noise[0]) == pytest.approx(float((hessian.diag() * torch.cat(sizes) ** 2).sum() / 2), rel=0.3)


def test_pairs_held_out_are_contexts_of_no_train_prompt():
    """Of the first decision, (a, b), of the answer, (r, c), or of both; held-out combinations have nearly none that are new."""
    a, b, c = chains.prompt_digits()
    contexts = (a * 6 + b, (a + b) % 6 * 6 + c)

    def new(train, others):
        return [[(~torch.isin(of[rest], of[own])).float().mean().item() for own, rest in zip(train, others, strict=True)]
                for of in contexts]  # fmt: skip

    train, *parts = chains.split_pairs(SEEDS, 2)
    assert torch.equal(torch.cat([train, *parts], -1).sort(-1).values, torch.arange(216).expand(SEEDS, -1))
    assert [new(train, part) for part in parts] == [
        [[float(one)] * SEEDS for one in kind] for kind in ((1, 0), (0, 1), (1, 1))
    ]
    combinations = torch.tensor(new(*chains.split_prompts(100, 2)))
    assert 0 < combinations.mean() < 0.01


@pytest.mark.parametrize("name", ["pairs", "rare"])
def test_a_study_without_horizons_counts_all_rates_and_tunes_none(name, tmp_path):
    study = yaml.safe_load((run.HERE / f"{name}.yaml").read_text())
    study |= {"calls": {"counting": [1, 2]}, "steps": [0, 2], "fillers": [0], "right": [0.1]}
    runner = run.Runner(study, tmp_path, [])
    units = [*runner.units([0])]
    assert [(unit.part, unit.arm) for unit in units] == [("counting", "grpo"), ("counting", "tr_grpo")] * len(
        study["rates"][0.1]
    )
    grpo, tr_grpo = (runner.run(unit) for unit in units[:2])
    names = chains.SPLITS[study["split"]][1]
    assert all([len(grpo[name]), len(grpo[name][0])] == [2, 2] for name in names)
    assert [grpo[name][0] for name in names] == [tr_grpo[name][0] for name in names], "one start, as step 0"
    assert grpo["train"][1] != tr_grpo["train"][1]


def test_the_study_goes_on_where_it_stopped(tmp_path, monkeypatch):
    study = yaml.safe_load((run.HERE / "study.yaml").read_text())
    stages = [{"arms": ["grpo", "tr_grpo"], "rates": "all"}, {"arms": ["grpo_9_samples"], "rates": "best"}]
    study |= {"steps": [2, 4], "horizons": [2, 4], "thresholds": [0.1, 0.95], "fillers": [0], "right": [0.75]}
    study |= {"calls": {"tuning": [1, 2], "counting": [2, 2]}, "stages": stages, "rates": {0.75: [0.001, 0.1]}}
    declared, records = tmp_path / "study.yaml", tmp_path / "out" / "records.jsonl"
    declared.write_text(yaml.safe_dump(study))
    monkeypatch.setattr(sys, "argv", ["study.py", "--study", str(declared), "--out", str(tmp_path / "out")])
    assert run.main() == 0
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    keys = [(line["arm"], line["part"], line["rates"]) for line in lines]
    tuned = [(arm, "tuning", [0.001, 0.1]) for arm in ("grpo", "tr_grpo", "grpo_9_samples")]
    counted = [(arm, "counting", [rate]) for rate in (0.001, 0.1) for arm in ("grpo", "tr_grpo")]
    assert keys == [*tuned[:2], *counted, tuned[2], ("grpo_9_samples", "counting", [0.001])], "0.1 breaks the policy"
    tuned, counted = lines[0], lines[2]
    assert [len(tuned["held_out"]), len(tuned["held_out"][0]), len(tuned["held_out"][0][0])] == [2, 2, 2]
    assert [len(counted["held_out"]), len(counted["held_out"][0])] == [2, 4]
    assert counted["passed"]["0.1"]["step"] == [2] * 4 and counted["passed"]["0.95"]["step"] == [-1] * 4
    assert counted["passed"]["0.1"]["train"] == counted["train"][0] and min(counted["passed"]["0.1"]["curvature"]) > 0
    written = records.read_text()
    records.write_text(written[: written.index("\n") + 50])  # the first line, and a part of the second
    assert run.main() == 0
    again = [json.loads(line) for line in records.read_text().splitlines()]
    for line in (*lines, *again):
        del line["cpu_seconds"]
    assert again == lines
    declared.write_text(yaml.safe_dump(study | {"steps": [2, 6]}))
    with pytest.raises(SystemExit):
        run.main()
