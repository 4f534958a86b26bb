"""What an estimator remembers goes into the checkpoint and comes back, through veRL's own callback and compute_advantage."""

import json

import pytest
import torch

from tests.conftest import composed
from tests.foreign_runs import ODD
from tests.verl_plugin.test_advantage_estimators import UIDS, advantages_of
from verl_trgrpo.verl_plugin.estimator_state import ESTIMATOR_STATE

callbacks = pytest.importorskip("verl.trainer.ppo.checkpoint_callback")  # since 0.9.1

BATCHES = ([1.0, 1.0, 0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0, 0.0, 0.0])


class Run:
    """The parts of a run of veRL's trainer that matter here, in its order: the callback, then steps and saves."""

    def __init__(self, directory, *overrides):
        self.config = composed([f"trainer.default_local_dir={directory}", *overrides]).config
        self.callback = callbacks.build_checkpoint_callback(self.config)
        self.directory = directory

    def step(self, batch, uids=UIDS):
        return advantages_of(self.config.algorithm.adv_estimator, self.config.algorithm, batch, uids)

    def save(self, step):
        checkpoint = self.directory / f"global_step_{step}"
        checkpoint.mkdir(parents=True)
        (self.directory / "latest_checkpointed_iteration.txt").write_text(str(step))
        self.callback.on_save(trainer=None, global_step=step, checkpoint_dir=str(checkpoint), async_save=False)
        return checkpoint


def test_a_resumed_run_goes_on_with_the_history_of_an_uninterrupted_one(tmp_path):
    overrides = ("algorithm=ha_dw", "algorithm.ha_dw.window=2")
    run = Run(tmp_path / "uninterrupted", *overrides)
    uninterrupted = [run.step(batch) for batch in BATCHES]

    run = Run(tmp_path / "killed", *overrides)
    run.step(BATCHES[0])
    first = run.save(1)
    run.step(BATCHES[1])
    run.save(2)
    run.step(BATCHES[1])  # lost: the checkpoint is older
    assert torch.equal(Run(tmp_path / "killed", *overrides).step(BATCHES[2]), uninterrupted[2])
    by_path = ("trainer.resume_mode=resume_path", f"trainer.resume_from_path={first}")
    assert torch.equal(Run(tmp_path / "killed", *overrides, *by_path).step(BATCHES[1]), uninterrupted[1])

    anew = Run(tmp_path / "killed", *overrides, "trainer.resume_mode=disable")
    assert torch.equal(anew.step(BATCHES[0]), uninterrupted[0])
    assert not torch.equal(uninterrupted[2], Run(tmp_path / "new", *overrides).step(BATCHES[2]))


def test_a_checkpoint_without_a_history_of_this_estimator_is_named(tmp_path, caplog):
    run = Run(tmp_path, "algorithm=ha_dw")
    run.step(BATCHES[0])
    file = run.save(1) / ESTIMATOR_STATE
    file.write_text(json.dumps({"adv_estimator": "other", "state": {"history": [0.0]}}))
    assert Run(tmp_path, "algorithm=ha_dw").step(BATCHES[0]).any() and "adv_estimator=other" in caplog.text
    file.unlink()
    caplog.clear()
    Run(tmp_path, "algorithm=ha_dw")
    assert str(file) in caplog.text
    caplog.clear()
    assert not (Run(tmp_path, "algorithm=reinforce_rej").save(2) / ESTIMATOR_STATE).exists() and not caplog.text


@pytest.mark.parametrize("field", ["", "adv_estimator", "state"])
def test_odd_values_of_a_saved_state_are_named_and_the_history_starts_anew(tmp_path, caplog, field):
    """EstimatorState: odd values, as in ``tests/test_typed_reading.py``."""
    run = Run(tmp_path, "algorithm=ha_dw")
    run.step(BATCHES[0])
    file = run.save(1) / ESTIMATOR_STATE
    whole = json.loads(file.read_text())
    for value in ODD:
        file.write_text(json.dumps(whole | {field: value} if field else value))
        caplog.clear()
        callbacks.build_checkpoint_callback(run.config)
        assert str(file) in caplog.text or value == whole["state"] or isinstance(value, dict), value
    assert "is damaged" in caplog.text
