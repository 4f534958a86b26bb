"""Effects of one update: Adam is torch's, updates are those of the trainer, and the model is as before after measuring."""

import json

import pandas
import pytest
import torch

from studies import trainer
from studies.update_effects import policies
from studies.update_effects import run as effects
from verl_trgrpo.common.progress import no_progress
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles, puzzle_row


def test_updates_are_those_of_torch_s_adamw():
    torch.manual_seed(0)
    parameters = [torch.randn(3, 4), torch.randn(5)]
    own, theirs = [p.clone() for p in parameters], [p.clone().requires_grad_() for p in parameters]
    adam = effects.Adam(own, 0.01)
    optimizer = torch.optim.AdamW(theirs, lr=0.01, weight_decay=0.0)
    for _ in range(5):
        gradients = [torch.randn_like(p) for p in parameters]
        peeked = adam.update(gradients, keep=False)
        updates = adam.update(gradients)
        assert all(torch.equal(one, other) for one, other in zip(peeked, updates, strict=True))
        for p, update, other, gradient in zip(own, updates, theirs, gradients, strict=True):
            p += update
            other.grad = gradient
        optimizer.step()
    for p, other in zip(own, theirs, strict=True):
        torch.testing.assert_close(p, other.detach())


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Two steps of the tiny model of puzzles: options, figures, and the model afterwards."""
    directory = tmp_path_factory.mktemp("effects")
    rows = [puzzle_row(puzzle, terse=True, extra_info=()) for puzzle in generate_puzzles(2, 4, seed=5)]
    for index, row in enumerate(rows):
        row["extra_info"] = {"index": index, "split": "train"}
    pandas.DataFrame(rows).to_parquet(directory / "train.parquet")
    given = {"train": str(directory / "train.parquet"), "out": str(directory / "run"), "prompts": 4, "mini_prompts": 2}
    given |= {"samples": 4, "max_tokens": 64, "steps": 2, "lr": 1e-3, "test_every": 0}
    arms = [trainer.Options(**given, arm=arm) for arm in ("tr_grpo", "grpo")]
    tokenizer = trainer.AutoTokenizer.from_pretrained(CHECKPOINT)
    policy = policies.LanguageModel(trainer.load_model(CHECKPOINT, "cpu"), tokenizer, arms)
    figures = [*effects.measured_training(policy, ("tr_grpo", "grpo"), 0, 1, no_progress)]
    return arms[0], figures, policy.model


def test_states_part_after_the_first_update_and_kinds_of_tokens_move_apart(measured):
    first, *_, last = measured[1]
    assert first["step"] < last["step"]
    assert first["relations"]["same state"] == pytest.approx(first["relations"]["own state"])
    assert last["relations"]["same state"] != pytest.approx(last["relations"]["own state"], rel=1e-4)
    assert 1.1 < first["relations"]["gradient"]["length"] < 1.3
    right, wrong = first["changes"]["own likely right"], first["changes"]["own likely wrong"]
    assert right["tr_grpo"] > 0 > wrong["tr_grpo"]
    assert right["tr_grpo"] != right["grpo, own state"]
    assert {name.split()[0] for name in first["changes"]} == {"own", "other"}


def test_the_measured_training_is_the_trainer_s(measured):
    options, _, model = measured
    trainer.train(options)
    expected = trainer.load_model(f"{options.out}/global_step_2", "cpu")
    start = trainer.load_model(CHECKPOINT, "cpu")
    for found, theirs, before in zip(*(each.parameters() for each in (model, expected, start)), strict=True):
        assert not torch.equal(found, before)
        torch.testing.assert_close(found - before, theirs - before, rtol=0.02, atol=2e-5)


def test_roles_of_chains_are_told_apart_and_accuracy_is_that_of_the_moved_policies():
    def build(names):
        return policies.ChainPolicies(policies.chains.Chain(fillers=10, right=0.5), names, 0.01, seeds=2, seed=3)

    names = ("grpo", "tr_grpo")
    policy, start = build(names), build(names)
    first = next(effects.measured_training(policy, names, 1, 1, no_progress))
    changes = first["changes"]
    assert 1 < first["relations"]["gradient"]["length"] < 1.4
    for p in ("rare wrong", "likely wrong"):
        counts = [changes[f"own {role}{p}"]["tokens"] for role in ("", "decision ", "filler ")]
        assert counts[0] == counts[1] + counts[2] and min(counts) > 0
    [half, _] = start.halves(1)
    updates = effects.Adam(start.parameters, 0.01).update(start.gradients(half)[0])
    before = start.accuracy()
    start.parameters = [p + update for p, update in zip(start.parameters, updates, strict=True)]
    assert changes["accuracy"]["grpo"] == pytest.approx(start.accuracy() - before, rel=1e-3)


def line(seed, tokens, change):
    """A line of a run's record."""
    changes = {"own rare right": {"tokens": tokens, "grpo": change, "tr_grpo": 0.0}}
    head = {"run": "tiny", "arm": "grpo", "seed": seed, "step": 1, "right": 0.5, "commit": "0123456"}
    return head | {"relations": {"gradient": {"cosine": 0.9, "length": 1.2}}, "changes": changes}


def test_records_of_runs_elsewhere_stay_and_a_repeated_run_replaces_its_own(tmp_path):
    def packed(name, runs):
        directory = tmp_path / name
        directory.mkdir()
        for place, lines in enumerate(runs):
            (directory / f"{place}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        assert effects.pack(directory, tmp_path / "all.jsonl") == len(runs)
        records = map(json.loads, (tmp_path / "all.jsonl").read_text().splitlines())
        return {one["seed"]: one["changes"]["own rare right"] for one in records}

    first = packed("first", [[line(1, 2, 0.3), line(1, 4, 0.6)], [line(0, 1, 0.1)]])
    assert first[1] == {"tokens": 6, "grpo": 0.5, "tr_grpo": 0.0}, "a mean over tokens"
    later = packed("later", [[line(2, 1, 0.2)], [line(0, 5, 0.4)]])
    assert [*later] == [0, 1, 2] and later[1] == first[1] and later[0]["tokens"] == 5
