"""``make small-lm`` up to the first download; test_small_lm.py has what follows."""

import pytest

from examples.small_lm import TASKS, main, platform_overrides
from verl_trgrpo.common.options import exit_code
from verl_trgrpo.runs.compose import compose


def test_a_wrong_override_is_reported_before_any_work(tmp_path, capsys):
    assert exit_code(lambda: main(["--out", str(tmp_path), "platform=cpu", "algorithm=tr_gpro"])) == 2
    assert "algorithm=tr_gpro" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("platform", "bypassed"), [("cpu", True), ("cpu_bf16", False)])
def test_a_given_platform_gets_the_overrides_of_a_chosen_one(tmp_path, platform, bypassed):
    overrides = [f"platform={platform}"]
    config = compose(TASKS["word_problems"].recipe, [*platform_overrides(overrides, tmp_path), *overrides]).config
    assert int(config.ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS) >= 1
    assert config.algorithm.rollout_correction.bypass_mode == bypassed


def test_given_threads_are_kept(tmp_path):
    overrides = ["platform=cpu", "+ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS='7'"]
    config = compose(TASKS["word_problems"].recipe, [*platform_overrides(overrides, tmp_path), *overrides]).config
    assert config.ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS == "7"
