"""``verl-trgrpo small-lm`` up to the first download; tests/demos has what follows."""

import pytest

from verl_trgrpo.cli.demonstrations import _for_platform
from verl_trgrpo.cli.main import main
from verl_trgrpo.runs.compose import compose


def test_a_wrong_override_is_said_before_any_work(tmp_path, capsys):
    assert main(["small-lm", "--out", str(tmp_path), "platform=cpu", "algorithm=tr_gpro"]) == 2
    assert "did you mean tr_grpo?" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("platform", "bypassed"), [("cpu", True), ("cpu_bf16", False)])
def test_a_platform_that_was_asked_for_gets_threads_and_probabilities_like_a_chosen_one(tmp_path, platform, bypassed):
    overrides = [f"platform={platform}"]
    config = compose("small_lm", [*_for_platform(overrides, tmp_path, print), *overrides]).config
    assert int(config.ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS) >= 1
    assert config.algorithm.rollout_correction.bypass_mode == bypassed


def test_threads_that_were_asked_for_are_kept(tmp_path):
    overrides = ["platform=cpu", "+ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS='7'"]
    config = compose("small_lm", [*_for_platform(overrides, tmp_path, print), *overrides]).config
    assert config.ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS == "7"
