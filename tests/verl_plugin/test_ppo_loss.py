"""The wrapped ppo_loss: transparent by default, exact metrics over micro-batches, weighted KL kinds."""

import math

import pytest
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.metric import Metric
from verl.workers.config import PolicyLossConfig
from verl.workers.utils import losses

from tests.core.reference import published_weight
from tests.fresh import run_fresh
from tests.verl_plugin.test_policy_loss import actor
from verl_trgrpo.core import make_shaping
from verl_trgrpo.verl_plugin.actor import TOKEN_INPUTS
from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig

LENGTHS = [(3, 5), (2, 1), (4, 9), (1, 2)]  # prompt and response tokens


def nested(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def micro_batch(rows, counts=None):
    """What veRL's engine hands to the loss: nested tensors without padding, and the log-probs of whole sequences."""
    responses = [LENGTHS[i][1] for i in rows]
    generators = [torch.Generator().manual_seed(i) for i in rows]
    log_probs = [-2 * torch.rand(sum(LENGTHS[i]), generator=g) for i, g in zip(rows, generators, strict=True)]
    # The log-probability of response token t comes from position t - 1.
    of_response = [x[LENGTHS[i][0] - 1 : -1] for i, x in zip(rows, log_probs, strict=True)]
    noise = [0.3 * torch.randn(n, generator=g) for n, g in zip(responses, generators, strict=True)]
    data = TensorDict(
        {
            "prompts": nested([torch.zeros(LENGTHS[i][0]) for i in rows]),
            "responses": nested([torch.zeros(n) for n in responses]),
            "response_mask": nested([torch.ones(n) for n in responses]),
            "old_log_probs": nested([x + e for x, e in zip(of_response, noise, strict=True)]),
            "ref_log_prob": nested([x - e for x, e in zip(of_response, noise, strict=True)]),
            "advantages": nested([torch.full((LENGTHS[i][1],), 1.0 - 0.7 * i) for i in rows]),
        },
        batch_size=len(rows),
    )
    counts = counts or {"dp_size": 1, "batch_num_tokens": sum(n for _, n in LENGTHS), "global_batch_size": len(LENGTHS)}
    tu.assign_non_tensor(data, max_response_len=max(responses), **counts)
    values = torch.cat(log_probs).requires_grad_()
    return values, {"log_probs": values}, data, torch.cat(of_response)


def evaluate(config, rows=range(4)):
    values, model_output, data, of_response = micro_batch(list(rows))
    loss, metrics = losses.ppo_loss(config, model_output, data)
    (gradient,) = torch.autograd.grad(loss, values)
    return loss.detach(), gradient, metrics, of_response


def reduced(metric):
    return metric.aggregate() if isinstance(metric, Metric) else metric


def test_vanilla_runs_are_untouched():
    original = losses.ppo_loss.__wrapped__
    _, model_output, data, _ = micro_batch(range(4))
    config = actor(PolicyLossConfig(), use_kl_loss=True)
    loss, metrics = original(config, model_output, data)
    wrapped_loss, _, wrapped_metrics, _ = evaluate(config)
    assert torch.equal(loss.detach(), wrapped_loss)
    assert {name: reduced(m) for name, m in metrics.items()} == {
        name: reduced(m) for name, m in wrapped_metrics.items()
    }


def test_metrics_of_unequal_micro_batches_are_merged():
    config = actor(TRGRPOPolicyLossConfig())
    _, _, whole, of_response = evaluate(config)
    parts = [evaluate(config, rows)[2] for rows in ([0], [1], [2, 3])]
    expected = sum(published_weight(p) for p in of_response.exp().tolist()) / len(of_response)
    for name in ("actor/tr_weight_mean", "actor/tr_weight_std", "actor/tr_grad_share_low_prob"):
        # As veRL's engine does: one list per rank, then the aggregation over ranks.
        rank = parts[0][name].init_list()
        for part in parts:
            rank.append(part[name])
        pooled = Metric.aggregate_dp([rank])
        assert pooled == pytest.approx(whole[name].aggregate(), rel=1e-4), name
        assert pooled != pytest.approx(sum(part[name].aggregate() for part in parts) / 3, rel=1e-3), name
    assert whole["actor/tr_weight_mean"].aggregate() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kl", ["scaled", "literal"])
def test_weighted_kl_is_added_once(kl):
    plain = evaluate(actor(TRGRPOPolicyLossConfig(), use_kl_loss=False))
    coefficient = 0.5
    config = actor(TRGRPOPolicyLossConfig(kl=kl), use_kl_loss=True, kl_loss_coef=coefficient)
    loss, gradient, metrics, of_response = evaluate(config)
    _, _, data, _ = micro_batch(range(4))
    log_rho = data["ref_log_prob"].values() - of_response
    weights = torch.tensor([published_weight(p) for p in of_response.exp().tolist()])
    if kl == "scaled":
        penalties = weights * (log_rho.exp() - log_rho - 1)
    else:
        penalties = weights * log_rho.exp() - weights.log() - log_rho - 1
    assert reduced(metrics["kl_loss"]) == pytest.approx(penalties.mean().item(), rel=1e-5)
    assert metrics["kl_coef"] == coefficient
    assert loss.item() == pytest.approx(plain[0].item() + coefficient * penalties.mean().item(), rel=1e-5)
    assert not torch.equal(gradient, plain[1])
    assert config.use_kl_loss is True


def test_plain_kl_stays_the_hosts():
    with_kl = evaluate(actor(TRGRPOPolicyLossConfig(), use_kl_loss=True))
    vanilla = evaluate(actor(PolicyLossConfig(), use_kl_loss=True))
    assert reduced(with_kl[2]["kl_loss"]) == reduced(vanilla[2]["kl_loss"])


def test_kl_kinds_without_a_kl_loss_change_nothing_and_others_than_k3_are_refused():
    plain, weighted = (evaluate(actor(TRGRPOPolicyLossConfig(kl=kl), use_kl_loss=False)) for kl in ("plain", "literal"))
    assert torch.equal(plain[0], weighted[0]) and "kl_loss" not in weighted[2]
    with pytest.raises(ValueError, match="kl_loss_type='mse'"):
        evaluate(actor(TRGRPOPolicyLossConfig(kl="scaled"), use_kl_loss=True, kl_loss_type="mse"))


def test_top_entropy_selects_by_entropy_and_not_by_surprisal():
    """Tokens whose entropy is high where their own probability is high, too: -log p would choose others."""
    config = actor(TRGRPOPolicyLossConfig(shaping=make_shaping("top_entropy", share=0.3)))
    values, model_output, data, of_response = micro_batch(list(range(4)))
    # Entropies of whole sequences, in the opposite order of the surprisal; the engine gives them with a gradient.
    entropy = (values.detach() + 3.0).requires_grad_()
    loss, metrics = losses.ppo_loss(config, {**model_output, "entropy": entropy}, data)
    gradient, none = torch.autograd.grad(loss, [values, entropy], allow_unused=True)
    assert none is None, "an entropy coefficient of 0 needs no backward pass"
    kept = torch.isin(values.detach(), of_response.topk(math.ceil(0.3 * len(of_response))).values)
    assert (gradient != 0).sum() > 0 and not gradient[~kept].any()
    assert reduced(metrics["actor/tr_weight_mean"]) == pytest.approx(6 / 17)
    rarest = of_response.topk(6, largest=False).values
    assert not gradient[torch.isin(values.detach(), rarest)].any()
    assert not hasattr(config, TOKEN_INPUTS), "the actor's own configuration carries nothing from batch to batch"


def test_the_entropy_reaches_the_weighted_kl_and_its_bonus_stays():
    shaping = make_shaping("top_entropy", share=0.3)
    config = actor(TRGRPOPolicyLossConfig(shaping=shaping, kl="scaled"), use_kl_loss=True, entropy_coeff=0.5)
    values, model_output, data, of_response = micro_batch(list(range(4)))
    entropy = (values.detach() + 3.0).requires_grad_()
    loss, metrics = losses.ppo_loss(config, {**model_output, "entropy": entropy}, data)
    (bonus,) = torch.autograd.grad(loss, [entropy])
    assert bonus.sum().item() == pytest.approx(-0.5)
    log_rho = data["ref_log_prob"].values() - of_response
    kept = of_response >= of_response.topk(6).values[-1]
    k3 = (log_rho.exp() - log_rho - 1)[kept].sum() / 17
    assert reduced(metrics["kl_loss"]) == pytest.approx(k3.item(), rel=1e-5)


@pytest.mark.parametrize("nested_rates", [False, True])
def test_columns_that_the_shaping_asks_for_reach_it(nested_rates):
    """Each response has a rate of its own; the reference differs for every other token."""
    shaping = make_shaping("tests.verl_plugin.input_shapings.both")
    _, model_output, data, of_response = micro_batch(list(range(4)))
    rates = [0.2, 0.4, 0.6, 0.8]
    column = torch.tensor(rates)[:, None]
    data["success_rate"] = nested(list(column)) if nested_rates else column
    ref = of_response.clone()
    ref[::2] -= 1
    data["ref_log_prob"] = nested(list(ref.split([n for _, n in LENGTHS])))
    config = actor(TRGRPOPolicyLossConfig(shaping=shaping, kl="scaled"), use_kl_loss=True, kl_loss_coef=0)
    _, metrics = losses.ppo_loss(config, model_output, data)
    expected = [1 + rate for rate, (_, n) in zip(rates, LENGTHS, strict=True) for _ in range(n)]
    expected = [weight + 2 * (i % 2) for i, weight in enumerate(expected)]
    assert reduced(metrics["actor/tr_weight_mean"]) == pytest.approx(sum(expected) / 17)
    # k3 of -1 with the weights of the even tokens; the others have none.
    k3 = sum(weight * math.exp(-1) for weight in expected[::2]) / 17
    assert reduced(metrics["kl_loss"]) == pytest.approx(k3, rel=1e-5)
    for name in ("success_rate", "ref_log_prob"):
        with pytest.raises(ValueError, match=f"takes {name}"):
            losses.ppo_loss(actor(TRGRPOPolicyLossConfig(shaping=shaping)), model_output, data.exclude(name))


def test_ids_and_log_probs_of_the_rollout_reach_a_shaping():
    shaping = make_shaping("tests.verl_plugin.input_shapings.icepop")
    _, model_output, data, _ = micro_batch(list(range(4)))
    lengths = [n for _, n in LENGTHS]
    old = data["old_log_probs"].values()
    data["rollout_log_probs"] = nested(list((old + 0.1 * (torch.arange(17) % 2)).split(lengths)))
    data["responses"] = nested(list((torch.arange(17) + 7 * (torch.arange(17) == 0)).split(lengths)))
    config = actor(TRGRPOPolicyLossConfig(shaping=shaping))
    _, metrics = losses.ppo_loss(config, model_output, data)
    assert reduced(metrics["actor/tr_weight_mean"]) == pytest.approx((9 + 2) / 17)
    with pytest.raises(ValueError, match=r"takes rollout_log_prob.*calculate_log_probs=true"):
        losses.ppo_loss(config, model_output, data.exclude("rollout_log_probs"))


def test_a_module_that_took_ppo_loss_before_the_plugin_gets_the_wrapped_one(tmp_path):
    (tmp_path / "own_engine.py").write_text("from verl.workers.utils.losses import ppo_loss\n")
    printed = run_fresh(
        f"import sys; sys.path.append({str(tmp_path)!r}); import verl, own_engine\n"
        "from verl.workers.utils import losses\n"
        "print(own_engine.ppo_loss is losses.ppo_loss, hasattr(own_engine.ppo_loss, '__wrapped__'))",
        {"VERL_USE_EXTERNAL_MODULES": "own_engine"},
    )
    assert printed.out == "True True\n"


def test_a_weighted_kl_is_refused_where_the_original_ppo_loss_is_called():
    _, model_output, data, _ = micro_batch(range(4))
    original = losses.ppo_loss.__wrapped__
    original(actor(TRGRPOPolicyLossConfig(), use_kl_loss=True), model_output, data)
    with pytest.raises(ValueError, match=r"kl='scaled'.*ppo_loss"):
        original(actor(TRGRPOPolicyLossConfig(kl="scaled"), use_kl_loss=True), model_output, data)
