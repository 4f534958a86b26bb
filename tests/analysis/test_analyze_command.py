"""``verl-trgrpo analyze`` on the tiny model: its figures against direct computations, its files and its refusals."""

import json
import math
import shutil
from pathlib import Path

import pandas
import pytest
import torch

from tests.core.reference import published_weight
from verl_trgrpo.analysis.gradients import analyze_gradients
from verl_trgrpo.analysis.options import AnalyzeOptions, parse_shaping
from verl_trgrpo.analysis.rollouts import load_policy, response_logits, sample_rollouts
from verl_trgrpo.analysis.sharpness import analyze_sharpness
from verl_trgrpo.cli.main import main
from verl_trgrpo.common.progress import no_progress
from verl_trgrpo.tasks.knights_and_knaves.puzzles import format_solution, generate_puzzles
from verl_trgrpo.tiny.puzzles import CHECKPOINT, prompt_messages


def options(data, **changes):
    sizes = {"prompts": 3, "samples": 4, "max_tokens": 40, "seed": 1}
    return AnalyzeOptions(model=(str(CHECKPOINT),), data=data, **{**sizes, **changes})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("analysis") / "train.parquet"
    rows = [
        {
            "data_source": "kk_3ppl",
            "prompt": prompt_messages(puzzle),
            "ability": "logic",
            "reward_model": {"style": "rule", "ground_truth": format_solution(puzzle.names, puzzle.solution)},
            "extra_info": {"index": i, "split": "train"},
        }
        for i, puzzle in enumerate(generate_puzzles(3, 6, seed=5))
    ]
    pandas.DataFrame(rows).to_parquet(path)
    return path


@pytest.fixture(scope="module")
def policy():
    return load_policy(CHECKPOINT, "cpu")


@pytest.fixture(scope="module")
def measured(policy, data):
    given = options(data, shaping=("sigmoid", "linear:alpha=1.0"), parameters="layers.3.mlp", tokens=30)
    return analyze_gradients(policy[1], sample_rollouts(*policy, given, no_progress), given, no_progress)


def direct_gradients(policy, data):
    """Probability, advantage and gradient of every token, by one backward pass each without padding."""
    tokenizer, model = policy
    parameters = [p for name, p in model.named_parameters() if "layers.3.mlp." in name]
    found = []
    for rollout in sample_rollouts(tokenizer, model, options(data), no_progress):
        ids = torch.cat([rollout.prompt, rollout.response])
        log_probs = torch.log_softmax(model(ids[None]).logits[0].double(), -1)
        for t, token in enumerate(rollout.response, start=len(rollout.prompt) - 1):
            grads = torch.autograd.grad(log_probs[t, token], parameters, retain_graph=True)
            gradient = torch.cat([g.flatten() for g in grads]).double()
            found.append((log_probs[t, token].exp().item(), rollout.advantage, gradient))
    return found


def test_shares_updates_and_cosines_are_those_of_a_direct_computation(policy, data, measured):
    figures, _, _ = measured
    direct = direct_gradients(policy, data)
    assert figures["tokens"] == len(direct)
    active = [token for token in direct if token[1] != 0]
    assert 0 < figures["tokens_with_gradient"] == len(active)
    for name, weight in {
        "uniform": lambda p: 1.0,
        "sigmoid": published_weight,
        "linear:alpha=1.0": lambda p: p,
    }.items():
        groups = [[token for token in active if min(int(4 * token[0]), 3) == q] for q in range(4)]
        updates = [sum(a * weight(p) * g for p, a, g in group) / len(direct) for group in groups]
        effect = figures["shapings"][name]
        for q, group in enumerate(groups):
            assert figures["quarters"][q]["tokens"] == len(group)
            if group:
                assert effect["update_norm"][q] == pytest.approx(updates[q].norm().item(), rel=1e-3)
                assert effect["weight"][q] == pytest.approx(sum(weight(p) for p, _, _ in group) / len(group), rel=1e-4)
        filled = [q for q in range(4) if groups[q]]
        assert len(filled) > 1
        low, high = filled[0], filled[-1]
        cosine = torch.nn.functional.cosine_similarity(updates[low], updates[high], dim=0).item()
        assert effect["cosine"][low][high] == pytest.approx(cosine, abs=1e-3)


def test_a_nearly_certain_token_has_its_norm_by_parameters(policy, data):
    """By an output layer of its own the gradient is (e_a - q) times the hidden state, so the ratio to 1 - p is known."""
    model = load_policy(CHECKPOINT, "cpu")[1]
    model.lm_head.weight = torch.nn.Parameter(2 * model.lm_head.weight.detach())
    rollouts = sample_rollouts(*policy, options(data), no_progress)
    figures, at_logits, norms = analyze_gradients(
        model, rollouts, options(data, parameters="lm_head", tokens=60), no_progress
    )
    misses = at_logits.misses[: len(norms)]
    certain = (misses > 1e-13) & (misses < 1e-7)
    assert figures["parameters"] == model.lm_head.weight.numel() and certain.sum() > 5
    hidden = norms / at_logits.norms[: len(norms)]
    # A last norm without a shift makes all hidden states about as long.
    assert hidden[certain].tolist() == pytest.approx(
        [hidden[misses > 0.1].median().item()] * int(certain.sum()), rel=0.1
    )


def test_shares_by_parameters_are_those_of_single_backward_passes(policy, data):
    given = options(data, shaping=("linear:alpha=1.0",), parameters="layers.3.mlp", tokens=10**6)
    rollouts = sample_rollouts(*policy, given, no_progress)
    figures, _, norms = analyze_gradients(policy[1], rollouts, given, no_progress)
    assert len(norms) == figures["tokens"]
    direct = direct_gradients(policy, data)
    expected = [[0.0] * 4, [0.0] * 4]
    for p, advantage, gradient in direct:
        for sums, weight in zip(expected, (1.0, p), strict=True):
            sums[min(int(4 * p), 3)] += abs(advantage) * weight * gradient.norm().item()
    for sums, effect in zip(expected, figures["shapings"].values(), strict=True):
        assert effect["share_at_parameters"] == pytest.approx([x / sum(sums) for x in sums], abs=1e-4)


def test_tokens_with_an_advantage_are_the_first_to_get_a_pass_of_their_own(policy, data):
    """Shares by parameters, of few tokens, are known whenever one response in all has an advantage."""
    given = options(data, parameters="layers.3.mlp", tokens=5)
    rollouts = sample_rollouts(*policy, given, no_progress)
    for chosen in (0, 5, 11):
        one = [rollout._replace(advantage=float(place == chosen)) for place, rollout in enumerate(rollouts)]
        figures, _, _ = analyze_gradients(policy[1], one, given, no_progress)
        for effect in figures["shapings"].values():
            assert sum(effect["share_at_parameters"]) == pytest.approx(1.0)


def test_every_token_lies_within_the_envelope(measured):
    figures, at_logits, norms = measured
    assert figures["envelope"]["holds"]
    assert (at_logits.norms >= at_logits.misses * (1 - 1e-9)).all()
    assert (at_logits.norms <= math.sqrt(2) * at_logits.misses * (1 + 1e-9)).all()
    assert len(norms) == 30


def test_padding_does_not_change_the_logits(policy, data):
    rollouts = sample_rollouts(*policy, options(data), no_progress)
    assert len({len(rollout.response) for rollout in rollouts}) > 2
    together = response_logits(policy[1], rollouts)
    for rollout, logits in zip(rollouts, together, strict=True):
        torch.testing.assert_close(logits, response_logits(policy[1], [rollout])[0], rtol=1e-4, atol=1e-3)


def test_sampling_leaves_the_global_generator_alone_and_repeats(policy, data):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first = sample_rollouts(*policy, options(data), no_progress)
    assert torch.equal(torch.rand(1), expected)
    second = sample_rollouts(*policy, options(data), no_progress)
    assert all(torch.equal(a.response, b.response) for a, b in zip(first, second, strict=True))


def copied_checkpoint(directory, **generation):
    """The checkpoint with a generation configuration of its own."""
    shutil.copytree(CHECKPOINT, directory)
    (directory / "generation_config.json").write_text(json.dumps(generation))
    return directory


def test_samples_are_of_the_policy_itself_whatever_the_model_would_like_for_sampling(policy, data, tmp_path):
    end = policy[1].generation_config.eos_token_id
    model = copied_checkpoint(tmp_path / "model", eos_token_id=end, repetition_penalty=2.0, min_p=0.2, do_sample=True)
    found, expected = (sample_rollouts(*own, options(data), no_progress) for own in (load_policy(model, "cpu"), policy))
    assert all(torch.equal(a.response, b.response) for a, b in zip(found, expected, strict=True))


def test_a_model_without_an_end_token_is_refused(tmp_path):
    model = copied_checkpoint(tmp_path / "model")
    for name, key in (("config.json", "eos_token_id"), ("tokenizer_config.json", "eos_token")):
        path = model / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: None}))
    with pytest.raises(ValueError, match="has no end token"):
        load_policy(model, "cpu")


def test_sharpness_of_a_checkpoint_has_the_gradient_norm_of_its_policy_gradient(policy, data):
    (found,) = analyze_sharpness(*policy, options(data, radius=(1e-4,)), no_progress)
    tokenizer, model = policy
    total, count = 0.0, 0
    for rollout in sample_rollouts(tokenizer, model, options(data), no_progress):
        ids = torch.cat([rollout.prompt, rollout.response])
        log_probs = torch.log_softmax(model(ids[None]).logits[0], -1)
        at = torch.arange(len(rollout.prompt) - 1, len(ids) - 1)
        total = total + rollout.advantage * log_probs[at, rollout.response].sum()
        count += len(rollout.response)
    grads = torch.autograd.grad(total / count, list(model.parameters()))
    norm = torch.cat([g.flatten() for g in grads]).norm().item()
    assert found.gradient_norm.mean == pytest.approx(norm, rel=1e-3)
    # To first order the step along the gradient raises the loss by radius times norm.
    assert found.sam_rise.mean > 0.5 * found.radius * norm


def test_rows_that_search_are_refused(policy, data, tmp_path):
    rows = pandas.read_parquet(data).assign(agent_name="trgrpo_search")
    rows.to_parquet(tmp_path / "search.parquet")
    with pytest.raises(ValueError, match=r"search\.parquet has rows with agent_name trgrpo_search(.|\n)*eval --search"):
        sample_rollouts(*policy, options(tmp_path / "search.parquet"), no_progress)
    # Named as the loop that a row has without a name, they are sampled as before.
    rows.assign(agent_name="single_turn_agent").to_parquet(tmp_path / "single.parquet")
    assert len(sample_rollouts(*policy, options(tmp_path / "single.parquet"), no_progress)) == 12


def test_shapings_are_parsed_with_their_parameters():
    shaping = parse_shaping("sigmoid:reverse=true,tau=6")
    assert (shaping.reverse, shaping.parameters["tau"]) == (True, 6)
    with pytest.raises(ValueError, match=r"alpha='x' is not a number(.|\n)*unknown shaping 'nosuch'"):
        options(Path("train.parquet"), shaping=("linear:alpha=x", "nosuch"))


def test_the_command_writes_tables_json_and_a_picture(data, tmp_path, capsys):
    files = ["analyze", "--model", str(CHECKPOINT), "--data", str(data), "--out", str(tmp_path)]
    sizes = ["--prompts", "3", "--samples", "4", "--max-tokens", "40", "--seed", "1"]
    assert main([*files, *sizes, "--tokens", "20", "--parameters", "layers.3"]) == 0
    assert "all tokens lie within 1 to sqrt(2)" in capsys.readouterr().out
    figures = json.loads((tmp_path / "gradients.json").read_text())
    assert figures["versions"]["torch"] == torch.__version__
    assert figures["envelope"]["holds"] and set(figures["shapings"]) == {"uniform", "sigmoid"}
    counts, sums = (figures["histogram"][name] for name in ("tokens", "gradient"))
    assert len(counts) == len(sums) == 20 and sum(counts) == figures["tokens"]
    assert [sum(sums[start : start + 5]) / sum(sums) for start in (0, 5, 10, 15)] == pytest.approx(
        figures["shapings"]["uniform"]["share_at_logits"]
    )
    assert (tmp_path / "gradients.png").read_bytes().startswith(b"\x89PNG")
    assert main([*files, *sizes, "--sharpness"]) == 0
    assert "gradient norm" in capsys.readouterr().out
    measured = json.loads((tmp_path / "sharpness.json").read_text())
    first, second, _ = measured["models"][str(CHECKPOINT)]
    assert second["radius"] == pytest.approx(10 * first["radius"])
    assert main([*files, "--prompts", "2", "--samples", "2", "--max-tokens", "1", "--sharpness"]) == 2
    assert f"error: {CHECKPOINT}: all 2 responses to each of 2 prompts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "/no/such/model"], "does not exist"),
        (["--samples", "1"], "samples=1"),
        (["--parameters", "layers.99"], "no parameter has 'layers.99'"),
        (["--shaping", "nosuch"], "unknown shaping"),
        (["--shaping"], "--shaping is empty"),
        (["--radius"], "--radius is empty"),
        (["--device", "cuda:99"], "device"),
        (["--model", str(CHECKPOINT), str(CHECKPOINT)], "one model at a time"),
        (["--only-tokens", "--sharpness"], "two different measurements"),
    ],
)
def test_wrong_input_is_named_in_one_line(data, tmp_path, capsys, arguments, message):
    base = ["analyze", "--model", str(CHECKPOINT), "--data", str(data), "--out", str(tmp_path)]
    assert main([*base, *arguments]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ") and message in error


def test_tokens_are_drawn_from_the_models_distribution_whatever_the_lengths_of_the_prompts(policy, data):
    rollouts = sample_rollouts(*policy, options(data, prompts=6, samples=8), no_progress)
    assert len({len(rollout.prompt) for rollout in rollouts}) > 1
    differences = []
    for rollout in rollouts:
        log_q = torch.log_softmax(response_logits(policy[1], [rollout])[0].double(), -1)
        drawn = log_q.gather(-1, rollout.response[:, None])[:, 0]
        differences.append(drawn - (log_q.exp() * log_q).sum(-1))  # 0 on average
    differences = torch.cat(differences)
    assert len(differences) > 1000 and abs(differences.mean()) < 4 * differences.std() / len(differences) ** 0.5


def test_a_missing_file_is_named_before_the_model_is_looked_for(tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["analyze", "--model", str(CHECKPOINT), "--data", "gone.parquet", "--out", out]) == 2
    assert "gone.parquet does not exist" in capsys.readouterr().err
