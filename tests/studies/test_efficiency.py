"""Efficiency of weighted gradients: its gradients against a direct computation, going on, its files and its refusals."""

import json
from importlib.metadata import version

import pytest
import torch

from studies.gradients import efficiency
from studies.gradients.efficiency import EfficiencyOptions, advice, analyze_efficiency
from studies.gradients.run import main
from tests.analysis.conftest import SIZES, command, write_puzzles
from tests.core.reference import published_weight
from verl_trgrpo.common.progress import no_progress
from verl_trgrpo.core import Shaping, make_shaping


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """Prompts for six mini-batches."""
    return write_puzzles(tmp_path_factory.mktemp("efficiency") / "train.parquet", 24)


def measuring(data, out, **changes):
    given = {"model": "any", "batches": 4, "parameters": "layers.1.mlp", "coordinates": 10**6, "out": out}
    return EfficiencyOptions(data=data, **{**SIZES, "shaping": ("sigmoid", "top_entropy"), **given, **changes})


def test_gradients_are_those_of_the_loss_of_a_mini_batch(two_layers, rollouts):
    """Computed one response at a time without padding; the entropy's threshold is that of the whole mini-batch."""
    some = rollouts[:8]
    shapings = {
        "uniform": make_shaping("uniform"),
        "sigmoid": make_shaping(),
        "top_entropy": make_shaping("top_entropy"),
    }
    parameters = [p for name, p in two_layers.named_parameters() if "layers.1.mlp" in name]
    coefficients, known = efficiency.weigh_tokens(two_layers, some, 4, shapings)
    found = efficiency._gradients(two_layers, parameters, some, 4, coefficients, bf16=False)
    log_probs, entropies, advantages = [], [], []
    for rollout in some:
        ids = torch.cat([rollout.prompt, rollout.response])
        log_q = torch.log_softmax(two_layers(ids[None]).logits[0, len(rollout.prompt) - 1 : -1], -1)
        log_probs.append(log_q.gather(-1, rollout.response[:, None])[:, 0])
        entropies.append(-(log_q.exp() * log_q).sum(-1).detach())
        advantages.append(torch.full_like(log_probs[-1], rollout.advantage).detach())
    log_probs, entropies, advantages = torch.cat(log_probs), torch.cat(entropies), torch.cat(advantages)
    kept = entropies >= entropies.topk(-(-len(entropies) // 5)).values[-1]
    weights = {
        "uniform": torch.ones_like(entropies),
        "sigmoid": torch.tensor([published_weight(p) for p in log_probs.exp().tolist()]),
        "top_entropy": kept.float(),
    }
    for gradient, weight in zip(found, weights.values(), strict=True):
        expected = torch.autograd.grad((weight * advantages * log_probs).mean(), parameters, retain_graph=True)
        for ours, direct in zip(gradient, expected, strict=True):
            torch.testing.assert_close(ours, direct, rtol=1e-3, atol=1e-6)
    rare = (advantages != 0) & (log_probs.exp() < 0.25)
    proxy = advantages.abs() * (1 - log_probs.exp())
    assert (known["rare"], known["tokens"]) == (int(rare.sum()), int((advantages != 0).sum()))
    assert known["rare_proxy"] / known["proxy"] == pytest.approx((proxy[rare].sum() / proxy.sum()).item(), rel=1e-3)


def test_a_run_that_was_interrupted_goes_on_and_finds_the_same(policy, two_layers, task, tmp_path):
    prompts = policy[0]

    def stopping(items, total, label):
        for number, item in enumerate(items):
            if number == 2:
                raise KeyboardInterrupt
            yield item

    whole = analyze_efficiency(prompts, two_layers, measuring(task, tmp_path / "whole"), no_progress)
    assert whole["mini_batches"] == 4 and whole["coordinates"] == whole["parameters"]
    assert set(whole["shapings"]) == {"uniform", "sigmoid", "top_entropy"}
    assert whole["shapings"]["uniform"]["efficiency"]["mean"] == 1.0
    given = measuring(task, tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        analyze_efficiency(prompts, two_layers, given, stopping)
    with pytest.raises(ValueError, match="other settings"):
        analyze_efficiency(prompts, two_layers, measuring(task, tmp_path / "parts", samples=3), no_progress)
    with torch.no_grad(), pytest.raises(ValueError, match="other settings"):
        weight = two_layers.model.layers[1].mlp.up_proj.weight
        kept = weight[0, 0].item()
        try:
            weight[0, 0] += 1
            analyze_efficiency(prompts, two_layers, given, no_progress)
        finally:
            weight[0, 0] = kept
    assert analyze_efficiency(prompts, two_layers, given, no_progress) == whole


def test_a_finished_measurement_goes_on_with_more_mini_batches(policy, two_layers, task, tmp_path):
    prompts = policy[0]
    few = analyze_efficiency(prompts, two_layers, measuring(task, tmp_path / "grown"), no_progress)
    more = analyze_efficiency(prompts, two_layers, measuring(task, tmp_path / "grown", batches=6), no_progress)
    assert more == analyze_efficiency(prompts, two_layers, measuring(task, tmp_path / "whole", batches=6), no_progress)
    assert more != few
    assert analyze_efficiency(prompts, two_layers, measuring(task, tmp_path / "grown"), no_progress) == few


def test_shapings_may_take_every_input_of_the_registry(two_layers, rollouts):
    """The reference is the model itself; a response is right if it is better than its group."""
    seen = {}

    def every(ref_log_prob, old_log_prob, log_prob, success_rate, advantages):
        seen.update(ref=ref_log_prob, old=old_log_prob, own=log_prob, rate=success_rate, advantages=advantages)
        return torch.ones_like(log_prob)

    inputs = ("ref_log_prob", "old_log_prob", "log_prob", "success_rate", "advantages")
    efficiency.weigh_tokens(two_layers, rollouts[:8], 4, {"every": Shaping("every", every, inputs)})
    assert torch.equal(seen["ref"], seen["own"]) and torch.equal(seen["old"], seen["own"])
    right = (seen["advantages"].amax(-1) > 0).float().view(2, 4).mean(-1)
    assert torch.equal(seen["rate"].amax(-1).view(2, 4).amax(-1), right)


def test_coordinates_are_a_random_sample_of_all(two_layers):
    parameters = list(two_layers.parameters())
    total = sum(p.numel() for p in parameters)
    found = efficiency._chosen_coordinates(parameters, total // 10, seed=0)
    sizes = torch.tensor([p.numel() for p in parameters])
    counts = torch.tensor([len(one) for one in found])
    assert counts.sum() == total // 10 and all(len(one.unique()) == len(one) for one in found)
    assert all(int(one.max()) < size for one, size in zip(found, sizes.tolist(), strict=True) if len(one))
    assert ((counts - sizes / 10).abs() < 6 * sizes.sqrt()).all()


def test_mini_batches_that_would_share_prompts_are_refused_with_the_number(policy, two_layers, task, tmp_path):
    with pytest.raises(ValueError, match=r"batches=7: .* has 24; set it to at most 6"):
        analyze_efficiency(policy[0], two_layers, measuring(task, tmp_path, batches=7), no_progress)


def test_the_command_writes_the_figures_a_picture_and_an_advice(task, tmp_path, capsys):
    words = ["--batches", "4", "--parameters", "layers.3", "--shaping", "sigmoid", "power"]
    assert main(["efficiency", *command(task, tmp_path, *words)[1:]]) == 0
    said = capsys.readouterr().out
    figures = json.loads((tmp_path / "efficiency.json").read_text())
    assert figures["advice"] in said and figures["versions"]["torch"] == version("torch")
    assert set(figures["shapings"]) == {"uniform", "sigmoid", "power"}
    assert (tmp_path / "efficiency.png").read_bytes().startswith(b"\x89PNG")


def figure(low, high):
    return {"mean": (low + high) / 2, "low": low, "high": high}


@pytest.mark.parametrize(
    ("interval", "signal", "verdict"),
    [
        ((0.9, 0.95), (1, 3), "leave it off"),
        ((0.9, 1.1), (1, 3), "no difference"),
        ((1.02, 1.1), (1, 3), "may help"),
        ((0.9, 0.95), (-1, 3), "more mini-batches"),
    ],
)
def test_the_advice_follows_from_the_interval_after_adam(interval, signal, verdict):
    shapings = {"uniform": {"adam_signal": figure(*signal)}, "sigmoid": {"adam_efficiency": figure(*interval)}}
    assert verdict in advice(shapings)


def test_few_mini_batches_are_refused(task, tmp_path):
    with pytest.raises(ValueError, match=r"batches=3(.|\n)*'nosuch'"):
        measuring(task, tmp_path, batches=3, shaping=("nosuch",))


def test_bf16_computes_nearly_the_same_gradients(two_layers, rollouts):
    some, shapings = rollouts[:8], {"uniform": make_shaping("uniform")}
    parameters = [p for name, p in two_layers.named_parameters() if "layers.1.mlp" in name]
    coefficients, _ = efficiency.weigh_tokens(two_layers, some, 4, shapings)
    exact, rounded = (
        torch.cat(
            [part.flatten() for part in efficiency._gradients(two_layers, parameters, some, 4, coefficients, bf16)[0]]
        )
        for bf16 in (False, True)
    )
    assert rounded.dtype == torch.float32 and not torch.equal(exact, rounded)
    assert torch.cosine_similarity(exact, rounded, dim=0) > 0.99
