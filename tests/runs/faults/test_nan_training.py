"""A reward that was NaN, at the place where it would reach the weights: veRL's worker, engine and optimizer."""

import json
import math
import os
import subprocess
import sys

import pytest

from tests.cluster.training import LIMIT, ROOT
from verl_trgrpo.runs.environment import training_environment


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("nan") / "found.json"
    environment = training_environment(True, os.devnull)
    environment |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    command = [sys.executable, "-m", "tests.runs.faults.nan_worker", str(out)]
    result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(out.read_text())


def test_a_sound_update_moves_the_weights(found):
    assert found["sound"]["moved"] > 0 and math.isfinite(found["sound"]["grad_norm"]) and not found["sound"]["error"]


def test_under_grpo_a_nan_skips_the_update_and_shows_in_the_gradients_norm(found):
    assert found["grpo"]["moved"] == 0 and math.isnan(found["grpo"]["grad_norm"])
    assert found["after"]["moved"] > 0 and math.isfinite(found["after"]["grad_norm"]), "the next update was not sound"


def test_under_tr_grpo_a_nan_stops_the_run_with_a_reason(found):
    assert "not finite: a reward was NaN or infinite" in found["tr_grpo"]["error"]
    assert found["tr_grpo"]["moved"] == 0
