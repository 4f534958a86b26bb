"""The effect of weights on gradients: figures against direct computations, files and refusals of the program."""

import json
import shutil
from importlib.metadata import version
from pathlib import Path

import pandas
import pytest
import torch
from omegaconf import OmegaConf

from studies.gradients.token_gradients import (
    analyze_gradients,
    chosen_parameters,
    logit_gradients,
    main,
    token_gradient_norms,
)
from studies.gradients.tokens import parse_shaping
from studies.rollouts import load_policy, rollout_log_probs, rollout_logits, sample_rollouts
from tests.core.reference import published_weight
from tests.studies.policies import command, options
from verl_trgrpo.common.options import exit_code
from verl_trgrpo.common.progress import no_progress
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.tasks.search_qa import SEARCH_AGENT


@pytest.fixture(scope="module")
def some(rollouts):
    return rollouts[:8]  # two groups


@pytest.fixture(scope="module")
def direct(two_layers, some):
    """Probability, advantage and gradient of every token, by one backward pass each without padding."""
    parameters = [p for name, p in two_layers.named_parameters() if "layers.1.mlp." in name]
    found = []
    for rollout in some:
        ids = torch.cat([rollout.prompt, rollout.response])
        log_probs = torch.log_softmax(two_layers(ids[None]).logits[0].double(), -1)
        for t, token in enumerate(rollout.response, start=len(rollout.prompt) - 1):
            grads = torch.autograd.grad(log_probs[t, token], parameters, retain_graph=True)
            gradient = torch.cat([g.flatten() for g in grads]).double()
            found.append((log_probs[t, token].exp().item(), rollout.advantage, gradient))
    return found


WEIGHTS = {"uniform": lambda p: 1.0, "sigmoid": published_weight, "linear:alpha=1.0": lambda p: p}


@pytest.fixture(scope="module")
def measured(two_layers, some, data):
    given = options(data, shaping=("sigmoid", "linear:alpha=1.0"), parameters="layers.1.mlp", tokens=10**6)
    return analyze_gradients(two_layers, some, given, no_progress)


def test_shares_updates_and_cosines_are_those_of_a_direct_computation(direct, measured):
    figures = measured
    assert figures["tokens"] == len(direct)
    active = [token for token in direct if token[1] != 0]
    assert 0 < figures["tokens_with_gradient"] == len(active)
    groups = [[token for token in active if min(int(4 * token[0]), 3) == q] for q in range(4)]
    filled = [q for q in range(4) if groups[q]]
    assert len(filled) > 1
    for name, weight in WEIGHTS.items():
        updates = [sum(a * weight(p) * g for p, a, g in group) / len(direct) for group in groups]
        effect = figures["shapings"][name]
        for q in filled:
            assert figures["quarters"][q]["tokens"] == len(groups[q])
            assert effect["update_norm"][q] == pytest.approx(updates[q].norm().item(), rel=1e-3)
            mean = sum(weight(p) for p, _, _ in groups[q]) / len(groups[q])
            assert effect["weight"][q] == pytest.approx(mean, rel=1e-4)
        low, high = filled[0], filled[-1]
        cosine = torch.nn.functional.cosine_similarity(updates[low], updates[high], dim=0).item()
        assert effect["cosine"][low][high] == pytest.approx(cosine, abs=1e-3)
        sums = [sum(abs(a) * weight(p) * g.norm().item() for p, a, g in group) for group in groups]
        assert effect["share_at_parameters"] == pytest.approx([x / sum(sums) for x in sums], abs=1e-4)


def test_a_nearly_certain_token_has_its_norm_by_parameters(rollouts):
    """By an output layer of its own the gradient is (e_a - q) times the hidden state, so the ratio to 1 - p is known."""
    model = load_policy(CHECKPOINT, "cpu")[1]
    model.lm_head.weight = torch.nn.Parameter(2 * model.lm_head.weight.detach())
    ratios, certain = [], []
    for rollout in rollouts[:4]:
        at_logits = logit_gradients(rollout_logits(model, [rollout])[0], rollout.response)
        log_probs = rollout_log_probs(model, [rollout], torch.float64)
        ratios.append(token_gradient_norms(log_probs, chosen_parameters(model, "lm_head")) / at_logits.norms)
        certain.append(at_logits.one_minus_prob)
    ratios, certain = torch.cat(ratios), torch.cat(certain)
    nearly = (certain > 1e-13) & (certain < 1e-7)
    assert nearly.sum() > 5
    # The last normalization has no shift, so all hidden states have about the same length.
    expected = ratios[certain > 0.1].median().item()
    assert ratios[nearly].tolist() == pytest.approx([expected] * int(nearly.sum()), rel=0.1)


@pytest.mark.parametrize("chosen", [0, 5, 11])
def test_tokens_with_an_advantage_are_the_first_to_get_a_pass_of_their_own(two_layers, rollouts, data, chosen):
    """Shares by parameters, of few tokens, are known even if only one response has an advantage."""
    given = options(data, parameters="layers.1.mlp", tokens=5)
    one = [rollout._replace(advantage=float(place == chosen)) for place, rollout in enumerate(rollouts)]
    figures = analyze_gradients(two_layers, one, given, no_progress)
    for effect in figures["shapings"].values():
        assert sum(effect["share_at_parameters"]) == pytest.approx(1.0)


def test_padding_does_not_change_the_logits(policy, rollouts):
    assert len({len(rollout.response) for rollout in rollouts}) > 2
    together = rollout_logits(policy[1], rollouts)
    for rollout, logits in zip(rollouts, together, strict=True):
        torch.testing.assert_close(logits, rollout_logits(policy[1], [rollout])[0], rtol=1e-4, atol=1e-3)


def test_sampling_leaves_the_global_generator_alone_and_repeats(policy, data, rollouts):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    again = sample_rollouts(*policy, options(data), no_progress)
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(a.response, b.response) for a, b in zip(rollouts, again, strict=True))


def copied_checkpoint(directory, **generation):
    """The checkpoint with a generation configuration of its own."""
    shutil.copytree(CHECKPOINT, directory)
    (directory / "generation_config.json").write_text(json.dumps(generation))
    return directory


def test_samples_are_of_the_policy_itself_whatever_its_generation_configuration(policy, data, rollouts, tmp_path):
    end = policy[1].generation_config.eos_token_id
    model = copied_checkpoint(tmp_path / "model", eos_token_id=end, repetition_penalty=2.0, min_p=0.2, do_sample=True)
    found = sample_rollouts(*load_policy(model, "cpu"), options(data), no_progress)
    assert all(torch.equal(a.response, b.response) for a, b in zip(found, rollouts, strict=True))


def test_prompts_are_those_of_the_run_that_made_the_checkpoint(policy, data):
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ 'yes' if enable_thinking else 'no' }}"
    run = OmegaConf.create({
        "actor_rollout_ref": {"model": {"custom_chat_template": template}},
        "data": {"apply_chat_template_kwargs": {"enable_thinking": False}},
    })  # fmt: skip
    prompts, model = load_policy(CHECKPOINT, "cpu", run)
    given = options(data, prompts=1, samples=2, max_tokens=1)
    starts = [
        sample_rollouts(each, model, given, no_progress, differing=False)[0].prompt for each in (policy[0], prompts)
    ]
    plain, of_run = (prompts.tokenizer.decode(start) for start in starts)
    assert of_run.endswith("no") and of_run != plain and len(of_run) > 10
    run = OmegaConf.create({"actor_rollout_ref": {"rollout": {"agent": {"default_agent_loop": SEARCH_AGENT}}}})
    with pytest.raises(ValueError, match=SEARCH_AGENT):
        sample_rollouts(*load_policy(CHECKPOINT, "cpu", run), given, no_progress)


def test_a_model_without_an_end_token_is_refused(tmp_path):
    model = copied_checkpoint(tmp_path / "model")
    for name, key in (("config.json", "eos_token_id"), ("tokenizer_config.json", "eos_token")):
        path = model / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: None}))
    with pytest.raises(ValueError, match="end token"):
        load_policy(model, "cpu")


def test_rows_that_search_are_refused(policy, data, tmp_path):
    rows = pandas.read_parquet(data).assign(agent_name="trgrpo_search")
    rows.to_parquet(tmp_path / "search.parquet")
    with pytest.raises(ValueError, match=r"search\.parquet(.|\n)*trgrpo_search"):
        sample_rollouts(*policy, options(tmp_path / "search.parquet"), no_progress)
    # The single-turn loop, which is that of rows without a name, is accepted.
    rows.assign(agent_name="single_turn_agent").to_parquet(tmp_path / "single.parquet")
    assert len(sample_rollouts(*policy, options(tmp_path / "single.parquet"), no_progress)) == 12


def test_shapings_are_parsed_with_their_parameters():
    shaping = parse_shaping("sigmoid:reverse=true,tau=6")
    assert (shaping.reverse, shaping.parameters["tau"]) == (True, 6)
    with pytest.raises(ValueError, match=r"alpha='x'(.|\n)*'nosuch'"):
        options(Path("train.parquet"), shaping=("linear:alpha=x", "nosuch"))


def test_the_program_writes_tables_and_json(data, tmp_path, capsys):
    assert main(command(data, tmp_path, "--tokens", "20", "--parameters", "layers.3")) == 0
    said = capsys.readouterr().out
    assert "all tokens are within" in said and str(tmp_path / "gradients.json") in said
    figures = json.loads((tmp_path / "gradients.json").read_text())
    assert figures["versions"]["torch"] == version("torch")
    assert figures["envelope"]["holds"] and set(figures["shapings"]) == {"uniform", "sigmoid"}
    assert {path.name for path in tmp_path.iterdir()} == {"gradients.json"}


def test_a_model_with_a_recurrent_state_is_refused(tmp_path):
    from transformers import MambaConfig, MambaForCausalLM

    model = copied_checkpoint(tmp_path / "model")
    config = MambaConfig(vocab_size=600, hidden_size=32, num_hidden_layers=1, state_size=4)
    MambaForCausalLM(config).save_pretrained(model)
    with pytest.raises(ValueError, match="recurrent state"):
        load_policy(model, "cpu")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "/no/such/model"], "/no/such/model"),
        (["--parameters", "layers.99"], "layers.99"),
        (["--device", "cuda:99"], "device"),
    ],
)
def test_wrong_input_is_named_in_one_line(data, tmp_path, capsys, arguments, message):
    assert exit_code(lambda: main(command(data, tmp_path, *arguments))) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ") and message in error
