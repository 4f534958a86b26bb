"""The trainer of studies: it samples the model's distribution, resumes exactly, and tells what is wrong at once."""

import itertools
import json
import math
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest
import torch

from studies import passes, trainer
from tests.studies.trainer_runs import drawn, options, sampled_batch
from verl_trgrpo.demos.puzzles import CHECKPOINT


def sequence_log_probs(model, prompt, response, temperature=1.0):
    """Log-probabilities of a response's tokens from one pass without padding, cache or batch."""
    logits = model(torch.tensor([[*prompt, *response]])).logits[0].double() / temperature
    table = torch.log_softmax(logits, -1)
    return table[torch.arange(len(prompt) - 1, len(prompt) + len(response) - 1), torch.tensor(response)]


def test_sampled_log_probs_are_those_of_unpadded_passes(tiny_run, model, tokenizer):
    rows, batch, _ = sampled_batch(model, tokenizer, options(tiny_run))
    assert len({len(row.prompt) for row in rows}) > 1
    assert len(set(batch.mask.sum(-1).tolist())) > 3
    for i in range(16):
        response = batch.responses[i, batch.mask[i]].tolist()
        expected = sequence_log_probs(model, rows[i // 4].prompt, response)
        torch.testing.assert_close(batch.log_probs[i, batch.mask[i]].double(), expected, rtol=0, atol=2e-5)


def test_tokens_are_drawn_with_the_models_probabilities(tiny_run, model, tokenizer):
    (row, *_), many = trainer.read_rows(str(tiny_run / "train.parquet"), tokenizer), 20_000
    batch = drawn(model, [row.prompt], many, [0], options(tiny_run, max_tokens=1, temperature=1.5))
    expected = torch.softmax(model(torch.tensor([row.prompt])).logits[0, -1].double() / 1.5, -1).detach() * many
    found = torch.bincount(batch.responses[:, 0], minlength=len(expected))
    frequent = expected > 10
    chi_square = ((found - expected)[frequent] ** 2 / expected[frequent]).sum() / frequent.sum()
    assert frequent.sum() > 50 and 0.6 < chi_square < 1.5


def test_what_is_drawn_for_a_row_does_not_depend_on_the_others(tiny_run, model, tokenizer):
    first, other, another = (row.prompt for row in trainer.read_rows(str(tiny_run / "train.parquet"), tokenizer)[:3])
    ends = [tokenizer.eos_token_id, *range(40)]
    one, two = (drawn(model, [x, first], 8, ends, options(tiny_run)) for x in (other, another))
    length = min(one.responses.shape[1], two.responses.shape[1])
    assert torch.equal(one.responses[8:, :length], two.responses[8:, :length])
    assert not torch.equal(one.responses[:8, :length], two.responses[:8, :length])


def test_training_passes_give_the_sampled_log_probs_whatever_the_split(tiny_run, model, tokenizer):
    _, batch, _ = sampled_batch(model, tokenizer, options(tiny_run, temperature=0.7))
    trained = torch.arange(len(batch.mask)) % 3 > 0
    for rows in (1, 5, 100):
        chosen = options(tiny_run, temperature=0.7, rows=rows)
        log_probs = trainer.trained_log_probs(model, batch, chosen, trained)
        torch.testing.assert_close(log_probs[batch.mask], batch.log_probs[batch.mask], rtol=0, atol=2e-5)


@pytest.mark.parametrize("bf16", [False, True])
def test_responses_without_advantage_are_left_out_of_the_backward_pass_alone(tiny_run, model, tokenizer, bf16):
    chosen = options(tiny_run, rows=5, bf16=bf16)
    _, batch, _ = sampled_batch(model, tokenizer, chosen)
    advantages = torch.randn(len(batch.mask), 1, generator=torch.Generator().manual_seed(0)) * batch.mask
    advantages[4:12] = 0
    gradients = []
    for trained in (torch.ones(len(batch.mask), dtype=torch.bool), (advantages != 0).any(-1)):
        model.zero_grad()
        with passes.half_precision("cpu", chosen.bf16):
            log_probs = trainer.trained_log_probs(model, batch, chosen, trained)
        (advantages * log_probs).sum().backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
    whole, part = gradients
    assert whole.norm() > 0 and (whole - part).norm() < (0.02 if bf16 else 1e-5) * whole.norm()


def test_equal_beginnings_are_sampled_from_one_row(tiny_run, model, tokenizer, monkeypatch):
    (row, *_), forward, rows = trainer.read_rows(str(tiny_run / "train.parquet"), tokenizer), model.forward, []
    monkeypatch.setattr(model, "forward", lambda ids, **others: rows.append(len(ids)) or forward(ids, **others))
    batch = drawn(model, [row.prompt], 30, [tokenizer.eos_token_id], options(tiny_run, temperature=0.7))
    said = [tuple(ids[keep].tolist()) for ids, keep in zip(batch.responses, batch.mask, strict=True)]
    begun = [{ids[:length] for ids in said if len(ids) > length} for length in range(1, batch.mask.shape[1])]
    assert rows == [1, *(len(different) for different in begun)]
    assert rows[1] < 30 and max(rows) > 1
    for ids, found in zip(said, batch.log_probs, strict=True):
        expected = sequence_log_probs(model, row.prompt, [*ids], temperature=0.7)
        torch.testing.assert_close(found[: len(ids)].double(), expected, rtol=0, atol=1e-4)


def run(directory, out, *arguments):
    files = ["--train", str(directory / "train.parquet"), "--test", str(directory / "test.parquet"), "--out", str(out)]
    sizes = {"prompts": 4, "samples": 4, "mini-prompts": 2, "max-tokens": 12, "test-every": 2, "lr": 0.01}
    given = [f"--{name}={value}" for name, value in sizes.items()]
    return trainer.main([*files, "--model", str(directory / "model"), *given, *arguments])


def metrics(path):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {r["step"]: {k: v for k, v in r["data"].items() if not k.startswith("timing_s/")} for r in records}


def weights(path):
    return trainer.load_model(path, "cpu").state_dict()


def give_random_rewards(monkeypatch):
    """A random model earns the same reward everywhere; one that depends on the text makes advantages, and an update."""
    score = lambda source, text, truth, extra: {"score": float(len(text) % 7), "acc": float(len(text) % 2)}  # noqa: E731
    monkeypatch.setattr(trainer, "compute_score", score)


def test_a_resumed_run_takes_the_same_steps(tiny_run, tmp_path, monkeypatch):
    give_random_rewards(monkeypatch)
    assert run(tiny_run, tmp_path / "whole", "--steps", "4") == 0
    assert run(tiny_run, tmp_path / "parts", "--steps", "2") == 0
    assert run(tiny_run, tmp_path / "parts", "--steps", "4", "--resume") == 0
    whole = metrics(tmp_path / "whole" / "metrics-1.jsonl")
    parts = metrics(tmp_path / "parts" / "metrics-1.jsonl") | metrics(tmp_path / "parts" / "metrics-2.jsonl")
    assert whole == parts
    assert sorted(whole) == [0, 1, 2, 3, 4]
    assert all(whole[step]["actor/grad_norm"] > 0 for step in (1, 2, 3, 4))
    expected, found = weights(tmp_path / "whole" / "global_step_4"), weights(tmp_path / "parts" / "global_step_4")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_the_validation_before_the_first_step_can_be_left_out(tiny_run, tmp_path):
    assert run(tiny_run, tmp_path / "all", "--steps", "3") == 0
    assert run(tiny_run, tmp_path / "later", "--steps", "3", "--skip-first-test") == 0
    validated = [{int(path.stem) for path in (tmp_path / name / "validation").iterdir()} for name in ("all", "later")]
    assert validated == [{0, 2, 3}, {2, 3}]


def test_a_validation_of_several_responses_to_each_prompt_reports_their_mean(tiny_run, tmp_path, monkeypatch):
    give_random_rewards(monkeypatch)
    assert run(tiny_run, tmp_path, "--steps", "1", "--test-samples", "3") == 0
    (found,) = (
        value for name, value in metrics(tmp_path / "metrics-1.jsonl")[1].items() if name.endswith("/acc/mean@3")
    )
    lines = [json.loads(line) for line in (tmp_path / "validation" / "1.jsonl").read_text().splitlines()]
    asked = [line["input"] for line in lines]
    assert asked == [text for text in asked[::3] for _ in range(3)]
    assert len({(line["input"], line["output"]) for line in lines}) > len(asked) // 3
    assert found == pytest.approx(sum(line["acc"] for line in lines) / len(lines))


def test_a_run_is_not_overwritten_and_not_resumed_as_another(tiny_run, tmp_path, monkeypatch, capsys):
    give_random_rewards(monkeypatch)
    assert run(tiny_run, tmp_path, "--steps", "1") == 0
    assert run(tiny_run, tmp_path, "--steps", "1") == 2
    assert "--resume" in capsys.readouterr().err
    assert run(tiny_run, tmp_path, "--steps", "2", "--resume", "--arm", "grpo", "--seed", "1") == 2
    assert "arm, seed" in capsys.readouterr().err


def test_without_checkpoints_only_the_model_is_kept_and_cannot_be_trained_on(tiny_run, tmp_path, monkeypatch, capsys):
    give_random_rewards(monkeypatch)
    assert run(tiny_run, tmp_path, "--steps", "2", "--save-every", "0") == 0
    assert [path.name for path in tmp_path.glob("global_step_*")] == ["global_step_2"]
    assert not list(tmp_path.rglob("optimizer.pt"))
    assert run(tiny_run, tmp_path, "--steps", "2", "--save-every", "0", "--resume") == 0
    assert run(tiny_run, tmp_path, "--steps", "3", "--resume") == 2
    assert "save_every=0" in capsys.readouterr().err


def test_sgd_does_not_cancel_a_factor_and_adamw_does(tiny_run, tmp_path, monkeypatch):
    """Of a random model all tokens are improbable, so that advantage reweighting multiplies all gradients by about 0.8."""
    give_random_rewards(monkeypatch)
    moved = {}
    for optimizer in ("adamw", "sgd"):
        for arm in ("grpo", "advantage_reweighting"):
            out = tmp_path / f"{optimizer}-{arm}"
            words = ("--steps", "1", "--prompts", "2", "--arm", arm, "--optimizer", optimizer, "--lr", "1e-3")
            assert run(tiny_run, out, *words, "--grad-clip", "1e9") == 0
            before, after = weights(tiny_run / "model"), weights(out / "global_step_1")
            moved[optimizer, arm] = torch.cat([(after[name] - before[name]).flatten() for name in before]).norm()
    assert moved["adamw", "advantage_reweighting"] / moved["adamw", "grpo"] == pytest.approx(1, abs=0.02)
    assert moved["sgd", "advantage_reweighting"] / moved["sgd", "grpo"] == pytest.approx(0.8, abs=0.03)


def test_half_precision_follows_every_update(tiny_run, tmp_path, monkeypatch):
    """Autocast keeps cast copies of weights: a context around the whole training would go on with those of the first step."""
    give_random_rewards(monkeypatch)
    assert run(tiny_run, tmp_path / "half", "--steps", "3", "--bf16") == 0
    assert run(tiny_run, tmp_path / "full", "--steps", "3") == 0
    half, full = (metrics(tmp_path / name / "metrics-1.jsonl") for name in ("half", "full"))
    assert half[3]["actor/loss"] != full[3]["actor/loss"]
    # The second update of a step sees the first one's: the policy has moved away from the one that sampled.
    assert all(abs(half[step]["actor/ppo_kl"]) > 1e-4 for step in (1, 2, 3))
    final = weights(tmp_path / "half" / "global_step_3")
    assert {weight.dtype for weight in final.values()} == {torch.float32}


def test_every_batch_of_an_epoch_has_new_prompts_and_epochs_differ():
    rows = list(range(12))
    first, second = ([trainer.batch_rows(rows, 4, 0, step) for step in steps] for steps in ((1, 2, 3), (4, 5, 6)))
    assert sorted(itertools.chain(*first)) == sorted(itertools.chain(*second)) == rows
    assert first != second
    assert first[0] != trainer.batch_rows(rows, 4, 1, 1)


def test_all_problems_of_the_options_are_reported_at_once(tiny_run):
    with pytest.raises(
        ValueError, match=r"lr=0.*no\.parquet does not exist.*optimizer='y' is unknown.*arm='x' is unknown.*samples=1"
    ) as error:
        options(tiny_run, lr=0.0, train="no.parquet", arm="x", optimizer="y", samples=1, prompts=3)
    assert "multiple of mini_prompts" in str(error.value)
    with pytest.raises(ValueError, match=r"lr=nan.*clip_high=-0\.5"):
        options(tiny_run, lr=math.nan, clip_high=-0.5)


def test_wrong_input_ends_with_its_reason_and_exit_code_2(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        trainer.main(["--train", "none.parquet", "--out", str(tmp_path)])
    assert "none.parquet does not exist" in capsys.readouterr().err


def test_a_directory_with_checkpoints_of_another_program_is_refused(tiny_run, tmp_path, capsys):
    (tmp_path / "global_step_backup").mkdir()
    (tmp_path / "global_step_4").mkdir()
    assert run(tiny_run, tmp_path) == 2
    assert "checkpoints of another program" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--prompts", "10000"], ["--device", "gpu"], ["--model", "no/such/model"]])
def test_what_cannot_begin_leaves_nothing_that_is_in_the_way_of_the_right_command(tiny_run, tmp_path, wrong, capsys):
    assert run(tiny_run, tmp_path / "out", *wrong) == 2
    assert wrong[1] in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_rows_without_a_reward_leave_nothing_either(tiny_run, tmp_path, capsys):
    table = pyarrow.parquet.read_table(tiny_run / "train.parquet")
    sources = pyarrow.array(["nobody/knows"] * len(table))
    table = table.set_column(table.column_names.index("data_source"), "data_source", sources)
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    assert trainer.main(["--train", str(tmp_path / "train.parquet"), "--out", str(tmp_path / "out")]) == 2
    assert "nobody/knows" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_update_without_a_finite_gradient_leaves_the_weights(tiny_run, tokenizer):
    model = trainer.load_model(CHECKPOINT, "cpu")
    _, batch, _ = sampled_batch(model, tokenizer, options(tiny_run))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    before = [parameter.clone() for parameter in model.parameters()]
    advantages = torch.full_like(batch.log_probs, math.inf)
    found = trainer.update(model, optimizer, batch, advantages, batch.mask, None, options(tiny_run))
    assert not math.isfinite(found["actor/grad_norm"])
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


def test_importing_the_trainer_imports_neither_verl_nor_ray():
    code = (
        f"import runpy, sys; runpy.run_path({trainer.__file__!r}); "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'verl', 'ray', 'vllm', 'hydra', 'pandas'}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
