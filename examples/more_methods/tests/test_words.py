"""Each experiment is one word of the configuration, and nothing of it is there in a run that does not ask for it."""

import subprocess
import sys
from pathlib import Path

import pytest
from more_methods.multi_reward.advantages import ConstraintOptions, Cost
from verl.utils.config import omega_conf_to_dataclass

from tests.conftest import composed
from tests.fresh import run_fresh
from tests.verl_plugin.test_registration import actor_of
from verl_trgrpo.runs.compose import compose

LOADED = "print('LOADED', sorted(name for name in sys.modules if name.startswith(('more_methods.multi', 'more_methods.igrpo'))))"


@pytest.mark.parametrize("stock", [False, True])
@pytest.mark.parametrize("word", ["gdpo", "constrained_grpo"])
def test_a_word_on_own_and_stock_configuration(word, stock):
    config = (composed([f"+algorithm={word}"], "ppo_trainer") if stock else composed([f"algorithm={word}"])).config
    algorithm, loss = omega_conf_to_dataclass(config.algorithm), actor_of(config).policy_loss
    sampler = config.trainer.v1.sampler
    assert (algorithm.adv_estimator, loss.loss_mode) == ({"gdpo": "tr_gdpo"}.get(word, word), "vanilla")
    assert sampler.custom_sampler.path == "pkg://more_methods.multi_reward.replay_buffer"
    assert sampler.sampler_kwargs.adv_estimator == algorithm.adv_estimator
    if word == "constrained_grpo":
        assert algorithm.constrained_grpo == ConstraintOptions([Cost("cut_off", 0.05)])


def test_a_run_is_named_after_its_word_and_the_shaping_that_was_added():
    named = compose(overrides=["algorithm=gdpo", "shaping=sigmoid"]).config.trainer.experiment_name
    assert named == "gdpo-sigmoid"


def test_nothing_is_imported_or_registered_in_a_run_that_does_not_ask():
    printed = run_fresh(
        "import sys\nimport verl\nfrom verl_trgrpo.checks.check import check\nfrom verl_trgrpo.runs.compose import compose\n"
        "check(compose(overrides=['data.train_files=none', 'data.val_files=none', 'actor_rollout_ref.model.path=a/b']), False)\n"
        "from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY\n"
        f"print('NAMES', {{'tr_gdpo', 'constrained_grpo'}} & {{*ADV_ESTIMATOR_REGISTRY}})\n{LOADED}"
    )
    assert "NAMES set()" in printed.out and "LOADED []" in printed.out


def test_the_trainer_finds_the_estimator_before_it_builds_its_replay_buffer():
    """Its callback, which restores what the estimator remembers, comes first."""
    printed = run_fresh(
        "import sys\nfrom verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback\n"
        "from verl_trgrpo.runs.compose import compose\n"
        "build_checkpoint_callback(compose(overrides=['algorithm=constrained_grpo']).config)\n"
        "from verl.trainer.ppo.core_algos import get_adv_estimator_fn\n"
        "print('REMEMBERS', get_adv_estimator_fn('constrained_grpo').remembers)"
    )
    assert "REMEMBERS True" in printed.out


def test_the_installed_program_knows_the_words_of_this_plugin_and_only_with_it(monkeypatch):
    def validate():
        words = [
            "validate",
            "kk_quickstart",
            "--no-files",
            "platform=cpu",
            "algorithm=gdpo",
            "agent=igrpo",
            "actor_rollout_ref.rollout.n=8",
        ]
        program = Path(sys.executable).with_name("verl-trgrpo")
        return subprocess.run([program, *words], capture_output=True, text=True, cwd="/", timeout=3600)

    known = validate()
    assert known.returncode == 0 and "no errors" in known.stdout, known
    monkeypatch.delenv("PYTHONPATH")
    unknown = validate()
    assert unknown.returncode == 1 and "algorithm=gdpo: does not exist" in unknown.stdout, unknown
