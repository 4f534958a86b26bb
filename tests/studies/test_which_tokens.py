"""Rules that choose tokens, and policies that are transformers: each against a closed form or an enumeration."""

import json
import lzma
import math
import re
import sys
from collections import Counter

import numpy as np
import pytest
import torch
import yaml
from scipy import stats

from studies.chains import chains, rules, transformer, which_tokens
from studies.chains.effects import fieller, unit_effect
from studies.chains.run import HERE
from tests.scripts import ROOT

SEEDS = 2
CHAIN = chains.Chain(fillers=10, right=0.5)


@pytest.fixture(scope="module")
def batch():
    start = chains.start_policies(CHAIN, SEEDS, seed=1, steps=60)
    prompts = torch.arange(8).expand(SEEDS, -1)
    return chains.sample_batch(start, prompts, 8, torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def policies():
    return transformer.new_policies(SEEDS, torch.Generator().manual_seed(1))


def weights_of(name, batch):
    """Weights of a rule with probabilities and entropies that are made up."""
    generator = torch.Generator().manual_seed(5)
    probs, entropy = (torch.rand(batch.tokens.shape, generator=generator) for _ in range(2))
    return rules.make_rule(name, SEEDS, 7)(batch)(batch, probs, entropy), probs, entropy


def test_rules_that_know_the_decisions(batch):
    decides = torch.tensor([position in (5, 11) for position in range(12)])
    found, probs, _ = weights_of("oracle", batch)
    assert torch.equal(found.bool(), decides.expand_as(found))
    found, probs, _ = weights_of("without_rare_wording", batch)
    assert torch.equal(found == 0, (probs < 0.25) & ~decides)
    found, probs, _ = weights_of("without_rare_decisions", batch)
    assert torch.equal(found == 0, (probs < 0.25) & decides)


def test_a_fifth_of_each_seed_s_tokens_is_kept(batch):
    own, _, entropy = weights_of("top_entropy", batch)
    others, _, _ = weights_of("other_entropy", batch)
    chance, _, _ = weights_of("random_fifth", batch)
    count = math.ceil(0.2 * batch.tokens[0].numel())
    for seed in range(SEEDS):
        assert own[seed].sum() == chance[seed].sum() == count
        assert entropy[seed][own[seed] > 0].min() >= entropy[seed][own[seed] == 0].max()
    assert torch.equal(own + others, torch.ones_like(own))
    assert not torch.equal(own, chance)


def test_rules_that_see_the_group(batch):
    found, probs, entropy = weights_of("success_rarity", batch)
    share = batch.rewards.mean(-1)[..., None, None].expand_as(probs)
    torch.testing.assert_close(found, share * (1 - probs))
    found, _, _ = weights_of("entropy_spread", batch)
    spread = batch.rewards.std(-1, correction=0)[..., None, None]
    torch.testing.assert_close(found, spread * entropy, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", [True, False])
def test_relevance_is_the_mean_squared_correlation_above_chance(batch, place):
    found = rules.Relevance(SEEDS, place).observe(batch)
    for seed, position, word in ((0, 5, 1), (1, 11, 3), (0, 4, 4), (1, 2, 0)):
        values = []
        for tokens, rewards in zip(batch.tokens[seed], batch.rewards[seed], strict=True):
            has = (tokens[:, position] == word if place else (tokens == word).any(-1)).float()
            if has.std() > 0 and rewards.std() > 0:
                values.append(torch.corrcoef(torch.stack([has, rewards]))[0, 1].item() ** 2 - 1 / 7)
        expected = max(0.0, sum(values) / len(values)) if values else 1.0
        assert found[seed, position, word].item() == pytest.approx(expected, abs=1e-4)


def test_relevance_finds_a_deciding_place_and_forgets_chance():
    generator, learn = torch.Generator().manual_seed(1), rules.Relevance(1, place=True)
    for _ in range(60):
        tokens = torch.randint(3, (1, 8, 8, 12), generator=generator)
        rewards = (tokens[..., 5] == 1).float()
        blank = torch.zeros(1, 8, 8, 12)
        found = learn.observe(chains.Batch(torch.zeros(1, 8).long(), tokens, tokens, blank, blank, rewards))
    assert found[0, 5, 1] > 0.8 and found[0, [0, 3, 11], :3].max() < 0.1


def test_cispo_keeps_the_gradient_where_the_clip_takes_it(batch):
    start = chains.start_policies(CHAIN, SEEDS, seed=1, steps=60)
    moved = [p + 0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(4)) for p in start]
    moved = [p.requires_grad_() for p in moved]
    weighting = chains.arm_weighting("grpo")
    training = chains.Training("adam", 4, clip_high=0.28, cispo=True)
    found = torch.autograd.grad(chains.seeds_loss(moved, batch, weighting, None, training), moved)
    log_probs = chains.token_log_probs(moved, batch)
    ratio = (log_probs - batch.log_probs).exp().detach()
    assert (ratio > 1.28).any()
    loss = -(ratio.clamp(max=1.28) * batch.advantages * log_probs).mean((1, 2, 3)).sum()
    for own, expected in zip(found, torch.autograd.grad(loss, moved), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-3, atol=1e-6)


def test_a_transformer_samples_what_it_computes_and_sees_wording(policies):
    prompts = torch.arange(8).expand(SEEDS, -1)
    batch = transformer.TRANSFORMER.sample(policies, prompts, 4, torch.Generator().manual_seed(3))
    log_probs, entropy = transformer.TRANSFORMER.tokens(policies, batch, True)
    torch.testing.assert_close(log_probs, batch.log_probs, rtol=1e-4, atol=1e-5)
    rows = batch.tokens.flatten(1, 2)
    every = transformer.chain_log_probs(policies, transformer.prompt_tokens(prompts, 4), rows)
    torch.testing.assert_close(entropy.flatten(1, 2), torch.distributions.Categorical(logits=every).entropy())
    changed = rows.clone()
    changed[..., 3] = (changed[..., 3] + 1) % 6
    other = transformer.chain_log_probs(policies, transformer.prompt_tokens(prompts, 4), changed)
    same = (every - other).abs().amax((0, 1, 3)) < 1e-6
    assert same.tolist() == [place <= 3 for place in range(12)], "a token sees all earlier ones and no later one"


def test_sampled_accuracy_is_that_of_many_answers(policies):
    found = transformer.sampled_right_probs(policies, 40, seed=2).mean(-1)
    prompts = torch.arange(216).expand(SEEDS, -1)
    batch = transformer.TRANSFORMER.sample(policies, prompts, 60, torch.Generator().manual_seed(3))
    error = (batch.rewards.var(dim=(1, 2)) / batch.rewards[0].numel()).sqrt()
    assert ((found - batch.rewards.mean((1, 2))).abs() < 4 * error).all()


def test_the_declared_order_tunes_each_arm_once_before_it_counts():
    study = yaml.safe_load((HERE / "which_tokens.yaml").read_text())
    tuned, counted = set(), []
    for part in study["order"]:
        assert set(part["arms"]) <= study["arms"].keys()
        for chain in part["chains"]:
            for arm in part["arms"]:
                tuned.add((part["network"], *chain, arm, part["tuned"]))
                counted.append((part["network"], *chain, arm, part["counted"]))
    assert len(counted) == len(set(counted))
    for arm in study["arms"].values():
        assert arm.get("rule", "oracle") in rules.RULES and arm.get("weights", "grpo") in chains.ARMS


def test_the_study_goes_on_where_it_stopped(tmp_path, monkeypatch):
    study = yaml.safe_load((HERE / "which_tokens.yaml").read_text())
    for network in study["networks"].values():
        network |= {"calls": {"tuning": [1, 2], "counting": [2, 2]}, "steps": [1, 2]}
    small = {"chains": [[0, 0.5]], "tuned": 2, "counted": 1, "to": 2, "arms": ["grpo", "covariance_place"]}
    study["order"] = [{"network": "hidden_layer", **small}]
    declared, records = tmp_path / "study.yaml", tmp_path / "out" / "records.jsonl"
    declared.write_text(yaml.safe_dump(study))
    monkeypatch.setattr(sys, "argv", ["study.py", "--study", str(declared), "--out", str(tmp_path / "out")])
    assert which_tokens.main() == 0
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert [(line["arm"], line["part"]) for line in lines] == [
        (arm, part) for arm in small["arms"] for part in ("tuning", "counting")
    ]
    means = [sum(values) for values in lines[0]["held_out"][0]]
    assert lines[1]["rates"] == [lines[0]["rates"][means.index(max(means))]]
    assert len(lines[1]["held_out"]) == 2 and len(lines[1]["held_out"][0]) == 4
    written = records.read_text()
    records.write_text(written[: written.index("\n") + 50])
    assert which_tokens.main() == 0
    again = [json.loads(line) for line in records.read_text().splitlines()]
    for line in (*lines, *again):
        del line["cpu_seconds"]
    assert again == lines


def test_fieller_s_interval_holds_the_shares_that_a_t_test_does_not_refuse():
    rng = np.random.default_rng(1)
    whole = rng.normal(0.08, 0.05, 60)
    own = 0.4 * whole + rng.normal(0, 0.04, 60)
    found = fieller(own, whole)
    grid = np.linspace(-1, 2, 3001)
    kept = [share for share in grid if stats.ttest_1samp(own - share * whole, 0).pvalue >= 0.05]
    assert found.mean == pytest.approx(own.mean() / whole.mean())
    assert [found.low, found.high] == pytest.approx([min(kept), max(kept)], abs=0.002)
    assert fieller(own, whole - whole.mean()).low is None


def test_units_count_once():
    values = [0.1, 0.3, -0.2, 0.0, 0.5, 0.1]
    one = unit_effect(values, [1, 1, 2, 2, 2, 3])
    means = [0.2, 0.1, 0.1]
    assert one.values == pytest.approx(means) and one.p == pytest.approx(stats.ttest_1samp(means, 0).pvalue)


@pytest.fixture(scope="module")
def at_end():
    """Held-out accuracy of each seed at 320 steps in the page's network, by chain and arm, from the raw lines."""
    counted = {}
    for one in map(json.loads, lzma.decompress((HERE / "records" / "which_tokens.jsonl.xz").read_bytes()).splitlines()):
        if (one["network"], one["part"], one["horizon"]) == ("hidden_layer", "counting", 320):
            key = (one["right"], one["fillers"], one["arm"])
            counted[key] = np.array(one["held_out"][one["steps"].index(320)]) / 1e4
    return counted


def rows_of(name):
    page = (ROOT / "docs" / "results" / "which_tokens.md").read_text()
    text = re.search(rf"which.{name}: begin -->(.*?)<!--", page, re.DOTALL)[1]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.strip().splitlines()][2:]


def test_shares_on_the_page_are_those_of_the_records(at_end):
    """By grid search over the t test."""
    seen = Counter()
    for right, fillers, arm, _, difference, share, *_ in rows_of("hidden_layer_320"):
        rights = (0.75, 0.5, 0.1) if right == "mean of three" else (float(right),)
        if arm.endswith("_4") or "oracle" in arm or "%" not in share:
            continue
        own, whole = (
            np.mean([at_end[one, int(fillers), rule] - at_end[one, int(fillers), "grpo"] for one in rights], 0)
            for rule in (arm, "oracle")
        )
        assert float(difference.split()[0]) == pytest.approx(own.mean(), abs=5.1e-4)
        mean, low, high = (float(one) / 100 for one in re.findall(r"-?\d+", share))
        assert mean == pytest.approx(own.mean() / whole.mean(), abs=0.0051)
        for edge in (low, high):
            p = [stats.ttest_1samp(own - (edge + step) * whole, 0).pvalue for step in (-0.006, 0.006)]
            assert min(p) < 0.05 < max(p)
        seen[len(rights)] += 1
    assert seen[1] >= 4 and seen[3] >= 4


def test_hypotheses_are_corrected_by_holm_s_method(at_end):
    found = []
    for name, about, _, p, verdict in rows_of("hypotheses"):
        if name != "H4":
            continue
        arm, right, fillers = re.fullmatch(r"(\w+) is .* grpo, ([\d.]+) with (\d+) fillers, 320 steps", about).groups()
        chain = (float(right), int(fillers))
        found.append((stats.ttest_1samp(at_end[(*chain, arm)] - at_end[(*chain, "grpo")], 0).pvalue, p, verdict))
    assert len(found) == 9
    least = 0.0
    for rank, (own, p, verdict) in enumerate(sorted(found)):
        least = max(least, min(1.0, own * (9 - rank)))
        assert p == ("p<1e-6" if least < 1e-6 else f"p={least:.2g}")
        assert (verdict == "holds") == (least < 0.05)
