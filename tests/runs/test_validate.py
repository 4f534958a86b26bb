"""Planted mistakes come out with the right words, all at once."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.runs.validation import validate
from verl_trgrpo.cli.main import main
from verl_trgrpo.common.findings import Level
from verl_trgrpo.tiny.puzzles import CHECKPOINT

RECIPES = Path(__file__).parents[2] / "recipes"
PUZZLES = str(RECIPES / "knights_and_knaves/qwen2.5-3b-instruct.yaml")
SEARCH = str(RECIPES / "search_qa/qwen2.5-3b.yaml")
ACTOR, ROLLOUT, LOSS = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.actor.policy_loss"
FIXED = [
    f"{ACTOR}.use_dynamic_bsz=false", f"{ACTOR}.ppo_micro_batch_size_per_gpu=8",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=8", "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8",
]  # fmt: skip


def write(path, data_source, rows=640):
    columns = {"prompt": [{"role": "user", "content": "x"}], "data_source": data_source, "reward_model": "x"}
    pq.write_table(pa.table({name: [value] * rows for name, value in columns.items()}), path)
    return path


@pytest.fixture
def data(tmp_path):
    """Overrides with data files that are there."""
    return [f"data.{part}_files={write(tmp_path / f'{part}.parquet', 'kk_3ppl')}" for part in ("train", "val")]


def test_a_sound_recipe_with_its_data_has_no_complaint(data):
    report = validate(PUZZLES, data)
    assert report.ok
    assert report.messages(Level.WARNING) == []
    assert report.total_steps == 50


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        ([f"{ACTOR}.ppo_mini_batch_size=128"], ["ppo_mini_batch_size=128", "train_batch_size=64", "count prompts"]),
        ([f"{ACTOR}.ppo_mini_batch_size=0"], ["ppo_mini_batch_size=0", "at least 1"]),
        ([*FIXED, f"{ACTOR}.ppo_micro_batch_size_per_gpu=7"], ["ppo_micro_batch_size_per_gpu=7", "64 responses"]),
        ([*FIXED, f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=6"], ["log_prob_micro_batch_size_per_gpu=6", "128"]),
        ([f"{ROLLOUT}.log_prob_use_dynamic_bsz=false"], ["log_prob_use_dynamic_bsz=false", "wants them equal"]),
        ([f"{ROLLOUT}.n=1"], ["n=1", "nothing to be compared with"]),
        ([f"{ROLLOUT}.tensor_model_parallel_size=3"], ["tensor_model_parallel_size=3", "4 GPUs"]),
        ([f"{ACTOR}.ulysses_sequence_parallel_size=3"], ["ulysses_sequence_parallel_size = 3", "4 GPUs"]),
        (
            [
                f"{ACTOR}.ulysses_sequence_parallel_size=2",
                "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
            ],
            ["ulysses_sequence_parallel_size=2", "attn_implementation=sdpa", "flash_attention_2"],
        ),
        (["data.max_response_length=8192"], ["400", "8592", "max_model_len=4496", "cut short"]),
        ([f"{ACTOR}.ppo_max_token_len_per_gpu=4000"], ["ppo_max_token_len_per_gpu=4000", "4496 tokens"]),
        ([f"{LOSS}.shaping.name=sigmoit"], ["Did you mean 'sigmoid'"]),
        (["algorithm=grpo", f"{ACTOR}.clip_ratio_low=1.5"], ["clip_ratio_low=1.5", "[0, 1]"]),
        ([f"{ACTOR}.loss_agg_mode=mean"], ["loss_agg_mode='mean'", "seq-mean-token-mean"]),
    ],
)
def test_a_planted_mistake_is_an_error_with_value_and_reason(data, overrides, parts):
    found = validate(PUZZLES, [*data, *overrides]).messages(Level.ERROR)
    assert any(all(part in message for part in parts) for message in found), found


@pytest.mark.parametrize(
    ("recipe", "overrides", "parts"),
    [
        (PUZZLES, [f"{LOSS}.placement=inside"], ["[0.8, 1.24]", "probability 0.212 to 1.000 and A > 0"]),
        (PUZZLES, ["algorithm=tr_grpo_published", f"{ACTOR}.use_kl_loss=false"], ["kl=literal", "there is none"]),
        (PUZZLES, [f"{LOSS}.kl=literal"], ["kl=literal", "pushes it away"]),
        (
            PUZZLES,
            [f"{ACTOR}.ppo_mini_batch_size=24"],
            ["=24 does not divide data.train_batch_size=64", "empty responses"],
        ),
        (
            PUZZLES,
            ["data.filter_overlong_prompts=false"],
            ["filter_overlong_prompts=false", "400 tokens stops the run"],
        ),
        (PUZZLES, ["algorithm.use_kl_in_reward=true"], ["count the KL twice"]),
        (
            SEARCH,
            [f"{ROLLOUT}.custom.search.max_searches=6"],
            ["7 turns of 500", "6500 tokens", "max_response_length=4500"],
        ),
    ],
)
def test_what_may_surprise_is_a_warning(recipe, overrides, parts):
    report = validate(recipe, overrides, need_files=False)
    assert report.ok
    found = report.messages(Level.WARNING)
    assert any(all(part in message for part in parts) for message in found), found


@pytest.mark.parametrize("place", ["nope.py", "pkg://nope.module"])
def test_a_reward_that_is_not_there_is_one_error(data, place):
    [problem] = validate(PUZZLES, [*data, f"reward.custom_reward_function.path={place}"]).messages(Level.ERROR)
    assert f"path={place} does not exist" in problem


def test_an_unknown_key_of_the_search_is_an_error():
    overrides = [f"+{ROLLOUT}.custom.search.deadlin=3"]
    assert "unknown keys deadlin" in validate(SEARCH, overrides, need_files=False).messages(Level.ERROR)[0]


def test_all_problems_come_out_at_once(data):
    overrides = [
        *data, "data.val_files=/no/kk/test.parquet", "trainer.n_gpus_per_node=3", "data.max_response_length=40000",
        f"{LOSS}.shaping.tau=0.1111", f"{LOSS}.placement=between", f"{ACTOR}.clip_ratio_c=0.5", f"{ROLLOUT}.mode=sync",
        f"{ROLLOUT}.val_kwargs.do_sample=true", f"{ROLLOUT}.temperature=0", f"{ACTOR}.kl_loss_type=k4",
    ]  # fmt: skip
    found = "\n".join(validate(PUZZLES, overrides).messages(Level.ERROR))
    for part in (
        "/no/kk/test.parquet does not exist", "docs/data.md", "= 256 responses", "3 data-parallel groups", "max_model_len",
        "same weight 1", "inverse temperature", "placement='between'", "outside or inside", "clip_ratio_c=0.5", "(1, inf]",
        "mode='sync'", "async", "temperature=0 is out of range", "kl_loss_type='k4'", "low_var_kl",
    ):  # fmt: skip
        assert part in found, part


def test_what_a_wrong_size_keeps_from_being_looked_at_is_said(data):
    unfit = [*data, "data.max_response_length=40000"]
    report = validate(PUZZLES, [*unfit, "data.train_batch_size=???"])
    errors, skipped = report.messages(Level.ERROR), "\n".join(report.messages(Level.NOT_CHECKED))
    assert any("data.train_batch_size has no value" in message for message in errors)
    assert any("max_model_len=4496" in message for message in errors), "lengths do not need it"
    assert "how batches are cut could not be looked at without data.train_batch_size" in skipped
    report = validate(PUZZLES, [*unfit, "data.max_prompt_length=x"])
    assert "lengths could not be looked at without data.max_prompt_length" in "\n".join(
        report.messages(Level.NOT_CHECKED)
    )


def test_a_stock_configuration_with_the_plus_is_looked_at_whole_too():
    overrides = ["+algorithm=tr_grpo", f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.n=8", f"{LOSS}.loss_mode=vanilla"]
    found = "\n".join(validate("ppo_trainer", overrides, need_files=False).messages(Level.ERROR))
    assert "loss_mode=vanilla ignores shaping" in found and "ppo_micro_batch_size_per_gpu" in found


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("algorithm.adv_estimator=grpoo", ["algorithm.adv_estimator='grpoo'", "did you mean grpo?", "rloo"]),
        (f"{LOSS}.loss_mode=gspoo", [f"{LOSS}.loss_mode='gspoo'", "did you mean gspo?", "cispo"]),
        ("algorithm.adv_estimator=gae", ["critic.model.path=~/models/", "algorithm.adv_estimator=grpo"]),
    ],
)
def test_names_that_nothing_has_are_named_with_their_key(data, override, parts):
    found = "\n".join(validate(PUZZLES, [*data, override]).messages(Level.ERROR))
    assert all(part in found for part in parts), found
    assert "ignores shaping" not in found, "one mistake is one complaint"


def test_a_data_source_that_verl_itself_does_not_score_is_an_error(tmp_path):
    puzzles, known = write(tmp_path / "kk.parquet", "kk_3ppl"), write(tmp_path / "math.parquet", "openai/gsm8k")
    unknown = write(tmp_path / "unknown.parquet", "capitals")

    def found(file, *more):
        files = [f"data.train_files={file}", f"data.val_files={known}"]
        return "\n".join(validate("ppo_trainer", ["+algorithm=tr_grpo", *files, *more]).messages(Level.ERROR))

    assert "'kk_3ppl', for which there is no reward" in found(puzzles)
    assert "reward.custom_reward_function.path=pkg://verl_trgrpo.tasks" in found(puzzles)
    assert "'capitals', for which there is no reward" in found(unknown)
    assert "for which there is no reward" not in found(known)
    assert "for which there is no reward" not in found(unknown, "reward.custom_reward_function.path=own.py")


def test_unknown_data_sources_and_missing_columns_are_errors(tmp_path):
    unknown = write(tmp_path / "unknown.parquet", "capitals")
    pq.write_table(pa.table({"nonsense": [1]}), tmp_path / "columns.parquet")
    overrides = [f"data.train_files={unknown}", f"data.val_files={tmp_path}/columns.parquet"]
    found = validate(PUZZLES, overrides).messages(Level.ERROR)
    assert "data source 'capitals', for which there is no reward" in found[0] and "kk_*ppl" in found[0]
    assert "lacks the column data_source, prompt, reward_model" in found[1]


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_json_files_which_verl_reads_are_not_checked_and_no_error(tmp_path, suffix):
    file = tmp_path / f"train{suffix}"
    file.write_text(json.dumps({"prompt": [{"role": "user", "content": "x"}]}) + "\n")
    report = validate(PUZZLES, [f"data.train_files={file}", f"data.val_files={file}"])
    assert report.ok, report.messages(Level.ERROR)
    found = report.messages(Level.NOT_CHECKED)
    assert sum(f"={file} is no parquet file" in message for message in found) == 2


def test_what_cannot_be_looked_at_is_said_and_not_counted_as_passed():
    report = validate(PUZZLES, need_files=False)
    assert report.ok
    found = report.messages(Level.NOT_CHECKED)
    assert sum("does not exist" in message for message in found) == 2
    assert any("Qwen/Qwen2.5-3B-Instruct is a name on a hub" in message for message in found)


def test_a_model_on_this_machine_is_opened_and_its_own_figures_count(data, tmp_path):
    local = f"actor_rollout_ref.model.path={CHECKPOINT}"
    longest = json.loads((Path(CHECKPOINT) / "config.json").read_text())["max_position_embeddings"]
    report = validate(PUZZLES, [*data, local])
    assert report.messages(Level.NOT_CHECKED) == []
    assert any(f"max_position_embeddings={longest}" in message for message in report.messages(Level.ERROR))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.json").write_text("{")
    found = validate(PUZZLES, [*data, f"actor_rollout_ref.model.path={tmp_path}/broken"]).messages(Level.ERROR)
    assert any("cannot be opened" in message for message in found)


def test_the_quickstart_s_own_configuration_is_fine(data):
    fits = [*data, f"actor_rollout_ref.model.path={CHECKPOINT}", "platform=cpu", "data.filter_overlong_prompts=true"]
    report = validate("kk_quickstart", fits)
    assert report.messages(Level.ERROR) == [] and report.messages(Level.WARNING) == []


def test_the_command_prints_everything_and_its_exit_code_is_the_verdict(data, capsys):
    assert main(["validate", PUZZLES, "--show", *data]) == 0
    shown = capsys.readouterr().out
    assert "data.train_batch_size: 64  (veRL: 1024)\n" in shown and "ppo_epochs" not in shown
    assert "steps: 50\n" in shown
    assert shown.index("no errors") < shown.index("train_batch_size")
    assert "no errors, 0 warnings, 2 not checked" in shown
    assert main(["validate", PUZZLES, *data, "trainer.n_gpus_per_node=3"]) == 1
    assert "error (1)" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["validate"], ["train", "--recipe"]])
@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("defaults:\n  - ppo_trainer\ndata: [1, {\n", ["mine.yaml, line 4", "not YAML"]),
        ("defaults:\n  - ppo_trainer\n\ttrainer: 1\n", ["mine.yaml, line 3", "not YAML"]),
        ("data: {train_batch_size: 8}", ["is not a whole configuration", "it lacks", "critic", "base.yaml"]),
    ],
)
def test_a_broken_recipe_is_a_line_with_its_place(tmp_path, capsys, command, content, parts):
    (tmp_path / "mine.yaml").write_text(content)
    assert main([*command, str(tmp_path / "mine.yaml")]) == 2
    output = capsys.readouterr().err
    assert output.count("\n") == 1 and all(part in output for part in parts), output


def test_a_dry_run_of_train_shows_the_same(data, capsys):
    main(["validate", PUZZLES, "--show", "--here", *data])
    expected = capsys.readouterr().out
    assert main(["train", "--recipe", PUZZLES, "--dry-run", *data]) == 0
    assert capsys.readouterr().out == expected


def test_hydras_own_way_to_show_a_configuration_is_answered_with_the_command_that_does(data, capsys):
    assert main(["train", "--recipe", PUZZLES, *data, "--cfg", "job"]) == 2
    said = capsys.readouterr().err
    command = said.partition("configuration: python -m ")[2].partition(" --cfg job")[0]
    result = subprocess.run(
        [sys.executable, "-m", *shlex.split(command), "--cfg", "job"], capture_output=True, text=True, check=True
    )
    shown = yaml.safe_load(result.stdout)
    assert shown["data"]["train_batch_size"] == 64 and shown["actor_rollout_ref"]["actor"]["clip_ratio_high"] == 0.24


def test_missing_files_are_named_before_anything_heavy_is_imported(tmp_path):
    program = (
        "import sys\nfrom verl_trgrpo.cli.main import main\nfrom verl_trgrpo.runs import validate\n"
        "def check(*_):\n    assert not {'torch', 'verl', 'transformers'} & sys.modules.keys()\n    sys.exit(7)\n"
        f"validate.check = check\nmain(['validate', {PUZZLES!r}])"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 7 and "data/kk/train.parquet does not exist" in ended.stderr, ended.stderr


def test_what_cannot_be_composed_is_wrong_input(capsys):
    assert main(["validate", "recipes/nowhere/x.yaml"]) == 2
    assert main(["validate", "data.train_batch_size=8"]) == 2
    output = capsys.readouterr().err
    assert "does not exist" in output and "is an override, not a configuration" in output and "Traceback" not in output
