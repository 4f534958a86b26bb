"""Ctrl-C during the start of a training."""

import signal

from tests.cluster.training import Attempt, HeldSave, overrides


def test_ctrl_c_stops_ray(tiny_run, tmp_path):
    """SIGINT as a terminal sends it, in the middle of the start, once Ray's first actor runs."""
    run_dir = tmp_path / "run"
    HeldSave(run_dir, 1, ranks=1)  # the training cannot get past its first step, however late the signal comes
    with Attempt(run_dir, overrides(tiny_run, run_dir, steps=2)) as attempt:
        attempt.wait_for(lambda: attempt.oldest("ray::TaskRunner"), "trainer's process")
        attempt.process.send_signal(signal.SIGINT)
        ended = attempt.end()
    assert ended.code == 130 and ended.left == ()
    assert "interrupted; " in ended.output and "the same command starts from scratch" in ended.output
