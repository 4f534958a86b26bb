"""Effects of one update: Adam is torch's, updates are those of the trainer, and the model is as before after measuring."""

import importlib
import sys

import pandas
import pytest
import torch

from tests.recipes.minimal_trainer_script import SCRIPT, trainer
from verl_trgrpo.common.progress import no_progress
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles
from verl_trgrpo.tasks.knights_and_knaves.rows import puzzle_row

sys.path.insert(0, str(SCRIPT.parent))
try:
    effects = importlib.import_module("update_effects")
finally:
    sys.path.remove(str(SCRIPT.parent))


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
    given |= {"samples": 6, "max_tokens": 64, "steps": 2, "lr": 1e-3, "test_every": 0}
    arms = [trainer.Options(**given, arm=arm) for arm in ("tr_grpo", "grpo")]
    tokenizer = trainer.AutoTokenizer.from_pretrained(CHECKPOINT)
    model = trainer.load_model(CHECKPOINT, "cpu")
    return arms[0], [*effects.measured_training(model, tokenizer, arms, 0, 1, no_progress)], model


def test_states_part_after_the_first_update_and_kinds_of_tokens_move_apart(measured):
    first, *_, last = measured[1]
    assert first["step"] < last["step"]
    assert first["relations"]["same state"] == pytest.approx(first["relations"]["own state"])
    assert last["relations"]["same state"] != pytest.approx(last["relations"]["own state"], rel=1e-4)
    assert 1.2 < first["relations"]["gradient"]["length"] < 1.4
    right, wrong = first["changes"]["own likely right"], first["changes"]["own likely wrong"]
    assert right["tr_grpo"]["p"] > 0 > wrong["tr_grpo"]["p"]
    assert right["tr_grpo"]["p"] != right["grpo, own state"]["p"]
    assert {name.split()[0] for name in first["changes"]} == {"own", "other"}


def test_the_measured_training_is_the_trainer_s(measured):
    options, _, model = measured
    trainer.train(options)
    expected = trainer.load_model(f"{options.out}/global_step_2", "cpu")
    start = trainer.load_model(CHECKPOINT, "cpu")
    for found, theirs, before in zip(*(each.parameters() for each in (model, expected, start)), strict=True):
        assert not torch.equal(found, before)
        torch.testing.assert_close(found - before, theirs - before, rtol=0.02, atol=2e-5)
