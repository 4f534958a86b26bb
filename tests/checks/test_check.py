"""Stages of the check, and the command that prints its findings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checks.validation import summary, validate
from tests.conftest import composed
from tests.data.checked_files import clean, write
from tests.launch.launching import save_checkpoint
from verl_trgrpo.checks.check import check, own_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.cli.main import main
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.demos.puzzles import CHECKPOINT

PUZZLES = str(Path(__file__).parents[2] / "recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml")
ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
MODEL = "actor_rollout_ref.model.path"
# Of a machine that has them, wherever the tests run.
GPUS = "+ray_kwargs.ray_init.num_gpus=8"


@pytest.fixture
def data(tmp_path):
    """Overrides with data files that exist."""
    return [f"data.{part}_files={write(tmp_path / f'{part}.parquet', clean(part, 640))}" for part in ("train", "val")]


def test_a_sound_run_has_no_findings_and_knows_its_steps(sound_run):
    report = validate("trgrpo_trainer", sound_run)
    assert report.findings == () and report.ok
    assert report.total_steps == 50 // 8 * report.config.trainer.total_epochs


@pytest.mark.parametrize("word", ["taco", "ipo_mask", "aspo_entropy_clip"])
def test_an_algorithm_of_token_weights_by_its_word_has_no_findings(sound_run, word):
    # Of two updates a batch: with one, the last two would be GRPO.
    updates = [f"{ACTOR}.ppo_mini_batch_size=4", f"{ACTOR}.ppo_micro_batch_size_per_gpu=4"]
    assert validate("trgrpo_trainer", [*sound_run, *updates, f"algorithm={word}"]).findings == ()


def test_the_quickstart_s_own_configuration_has_no_findings(data):
    assert validate("kk_quickstart", [*data, f"{MODEL}={CHECKPOINT}", "platform=cpu"]).findings == ()


def test_one_round_names_the_mistakes_of_all_stages(sound_run):
    single = [f"{ACTOR}.optim.lr=abc", f"{MODEL}=/no/model", "+trainer.mine=1", "trainer.v1=5", "data.seed=x"]
    built = [f"{ACTOR}.policy_loss.shaping.name=sigmoit", f"{ACTOR}.policy_loss.placement=between"]
    between = [
        "data.max_response_length=4000",
        "trainer.n_gpus_per_node=3",
        f"{ROLLOUT}.n=1",
        f"{ACTOR}.clip_ratio_c=0.5",
    ]

    def found(*overrides):
        report = validate("trgrpo_trainer", [*sound_run, *overrides])
        assert not report.ok and report.total_steps is None
        return [each for each in summary(report.findings) if each[1] is not Level.NOT_CHECKED]

    keys = [f"{ACTOR}.optim.lr", MODEL, "trainer.v1", "data.seed"]
    idle = ("trainer.mine", Level.WARNING)  # added on purpose, and nothing reads it
    assert sorted(found(*single)) == sorted([*((key, Level.ERROR) for key in keys), idle])
    keys += [f"{ACTOR}.policy_loss.shaping", f"{ACTOR}.policy_loss"]
    assert sorted(found(*single, *built)) == sorted([*((key, Level.ERROR) for key in keys), idle])
    keys += [f"{ROLLOUT}.n", f"{ACTOR}.ppo_mini_batch_size", ACTOR]  # no length, because the model is not there
    assert sorted(found(*single, *built, *between)) == sorted([*((key, Level.ERROR) for key in keys), idle])
    keys = [f"{ROLLOUT}.n", f"{ACTOR}.ppo_mini_batch_size", "data.max_response_length", ACTOR]
    assert found(*between) == [(key, Level.ERROR) for key in keys]


def test_one_mistake_is_one_finding(sound_run):
    for override in (f"{ACTOR}.ppo_micro_batch_size_per_gpu=0", "data.train_files=5", "algorithm.adv_estimator=grpoo"):
        assert len(validate("trgrpo_trainer", [*sound_run, override]).messages(Level.ERROR)) == 1


def test_what_is_not_on_this_machine_is_not_checked():
    report = validate(PUZZLES, [GPUS], need_files=False)
    assert report.ok and report.total_steps is None
    keys = ["data.train_files", "data.val_files", MODEL, "data.max_prompt_length"]
    assert summary(report.findings) == [(key, Level.NOT_CHECKED) for key in keys]


def test_the_command_prints_everything_and_its_exit_code_is_the_verdict(data, capsys):
    assert main(["validate", PUZZLES, "--show", *data, GPUS]) == 0
    shown = capsys.readouterr().out
    assert "data.train_batch_size: 64  (veRL: 1024)\n" in shown and "ppo_epochs" not in shown
    assert "steps: 50\n" in shown and "no errors, 0 warnings, 2 not checked" in shown
    assert main(["validate", PUZZLES, *data, "trainer.n_gpus_per_node=3"]) == 1
    assert "error (1)" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["validate", "train"])
def test_a_recipe_that_is_not_yaml_is_one_line_with_the_place(tmp_path, capsys, command):
    (tmp_path / "mine.yaml").write_text("defaults:\n  - ppo_trainer\ndata: [1, {\n")
    assert main([command, str(tmp_path / "mine.yaml")]) == 2
    output = capsys.readouterr().err
    assert output.count("\n") == 1 and "mine.yaml, line 4" in output


def test_what_is_about_a_refused_word_is_not_reported(sound_run):
    refused = {"data.train_file": "data.train_file: unknown key; did you mean data.train_files?"}
    report = validate("trgrpo_trainer", [*sound_run, "data.train_files=/no/file.parquet", f"{ROLLOUT}.n=1"]).beside(
        refused
    )
    assert summary(report.findings)[:2] == [("data.train_file", Level.ERROR), (f"{ROLLOUT}.n", Level.ERROR)]
    assert not [each for each in report.findings if each.where == "data.train_files"]


def test_many_unknown_keys_are_shown_once_and_do_not_end_the_round(sound_run, capsys):
    words = [f"trainer.mine{number}=1" for number in range(7)]
    assert main(["validate", "trgrpo_trainer", *sound_run, *words, f"{ROLLOUT}.n=1"]) == 1
    told = capsys.readouterr().out
    assert [told.count(word.partition("=")[0]) for word in words] == [1] * 7
    assert told.count(f"  - {ROLLOUT}.n=1") == 1


def test_six_mistakes_in_one_command_are_one_round(sound_run, capsys):
    words = ["data.train_fils=x", f"{ROLLOUT}.n=five", "data.val_files=/no/val.parquet", f"{MODEL}=/no/model"]
    words += [
        "trainer.n_gpus_per_node=8",
        f"{ROLLOUT}.tensor_model_parallel_size=3",
        f"{ACTOR}.ppo_mini_batch_size=999",
    ]
    assert main(["validate", "trgrpo_trainer", *sound_run, *words]) == 1
    told = capsys.readouterr().out
    for word in (*words[:4], *words[5:]):
        assert told.count(f"  - {word.partition('=')[0]}") == 1, word


def test_missing_micro_batches_are_one_round(sound_run, capsys):
    keys = [f"{ACTOR}.ppo_micro_batch_size", f"{ROLLOUT}.log_prob_micro_batch_size", f"{REF}.log_prob_micro_batch_size"]
    words = [*(f"{key}_per_gpu=null" for key in keys), f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.use_dynamic_bsz=false"]
    assert main(["validate", "trgrpo_trainer", *sound_run, *words]) == 1
    told = capsys.readouterr().out
    for key in keys:
        assert f"at least one of '{key}'" in told or f"at least one of '{key.partition('.')[2]}'" in told, told


def test_a_setting_is_checked_beside_the_misspelt_key_that_resembles_it(sound_run, capsys):
    misspelt = ["data.train_file=x", "data.train_files=/no/train.parquet"]
    assert main(["validate", "trgrpo_trainer", *sound_run, *misspelt]) == 1
    told = capsys.readouterr().out
    assert "did you mean data.train_files?" in told and "data.train_files=/no/train.parquet does not exist" in told


def test_missing_files_are_named_before_anything_heavy_is_imported(tmp_path):
    program = (
        "import sys\nfrom verl_trgrpo.cli.main import main\nfrom verl_trgrpo.checks import check as checks\n"
        "def check(*_, **__):\n"
        "    assert not {'torch', 'verl', 'transformers', 'pyarrow'} & sys.modules.keys()\n    sys.exit(7)\n"
        f"checks.check = check\nsys.exit(main(['validate', {PUZZLES!r}]))"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 7 and "data/kk/train.parquet" in ended.stdout, ended.stderr


def test_what_cannot_be_composed_is_wrong_input(capsys):
    assert main(["validate", "recipes/nowhere/x.yaml"]) == 2
    assert main(["validate", "nowhere"]) == 2
    output = capsys.readouterr().err
    assert "recipes/nowhere/x.yaml" in output and "nowhere: " in output and "Traceback" not in output


class Bringing:
    """A class of a run that brings a check along."""

    @staticmethod
    def run_checks(view):
        return [Finding.warning("trainer.nnodes", f"{view['trainer.nnodes']} and {sorted(view.agents)}")]


class BringingLoop:
    @staticmethod
    def run_checks(view):
        return [Finding.error(f"{ROLLOUT}.n", "of the loop")]


def test_classes_of_a_run_bring_their_checks_along(sound_run, tmp_path):
    loops = [{"name": name, "_target_": f"{__name__}.BringingLoop"} for name in ("mine", "other")]
    (tmp_path / "loops.yaml").write_text(json.dumps(loops))
    given = [*sound_run, f"{ROLLOUT}.agent.agent_loop_config_path={tmp_path}/loops.yaml"]
    view = RunView(composed([*given, f"algorithm._target_={__name__}.Bringing"]))
    assert [found.message for found in own_findings(view)] == ["1 and ['single_turn_agent']"]
    view = RunView(
        composed(
            [*given, f"{ACTOR}.policy_loss._target_={__name__}.Bringing", f"{ROLLOUT}.agent.default_agent_loop=mine"]
        )
    )
    assert [found.where for found in own_findings(view)] == ["trainer.nnodes", f"{ROLLOUT}.n"]
    report = validate("trgrpo_trainer", [*given, f"{ROLLOUT}.agent.default_agent_loop=mine"])
    assert (f"{ROLLOUT}.n", Level.ERROR) in summary(report.findings)
    assert validate("trgrpo_trainer", given).findings == (), "a loop that no row uses is not asked"


def test_what_a_machine_lacks_is_an_error_where_it_trains_unless_the_run_is_finished(sound_run, tmp_path):
    given = [*sound_run, "trainer.logger=vemlp_wandb", "trainer.save_freq=1", "trainer.total_training_steps=3"]
    for trains, level in ((False, Level.NOT_CHECKED), (True, Level.ERROR)):
        assert summary(check(composed(given), trains=trains).findings) == [("trainer.logger", level)]
    save_checkpoint(tmp_path / "run", 3, version=1)
    assert check(composed(given), trains=True).findings == ()


def test_what_verl_s_own_validation_refuses_does_not_hide_the_rules(sound_run):
    """It names no key, and stops at its first error."""
    lacking = ["mismatch=tis", "actor_rollout_ref.rollout.calculate_log_probs=false",
               "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=null"]  # fmt: skip
    report = check(composed([*sound_run, *lacking]), need_files=False)
    assert any("veRL refuses" in message for message in report.messages(Level.ERROR))
    assert any("responses are not corrected" in message for message in report.messages(Level.WARNING))
