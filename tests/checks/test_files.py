"""Files that a run names and that do not exist, or are not what they should be."""

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.checks.validation import summary
from tests.conftest import composed
from tests.data.checked_files import row, truth, write
from verl_trgrpo.checks.check import check
from verl_trgrpo.checks.data_files import data_findings
from verl_trgrpo.checks.files import looks_local, missing_files, model_findings, module_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.tasks.registry import DEFAULT_REWARD_KEY

MODEL = "actor_rollout_ref.model"


def view_of(sound_run, *overrides, **options):
    return RunView(composed([*sound_run, *overrides]), **options)


def test_everything_that_is_named_must_exist(sound_run):
    wrong = {
        f"{MODEL}.path": "runs/kk/grpo/global_step_3", f"{MODEL}.tokenizer_path": "/no/such",
        "trainer.v1.sampler.custom_sampler.path": "pkg://no.such", "data.custom_cls.path": "nope.py",
        "reward.custom_reward_function.path": "nope.py", "data.train_files": ".", "critic.model.path": "./models/none",
        "trainer.default_local_dir": __file__,
    }  # fmt: skip
    more = ["trainer.resume_mode=resume_path", "data.val_files=[]", "algorithm.adv_estimator=gae"]
    view = view_of(sound_run, *more, *(f"{key}={value}" for key, value in wrong.items()))
    found = {finding.where: finding for finding in missing_files(view)}
    assert found.keys() == {*wrong, "trainer.resume_from_path", "data.val_files"}
    assert all(finding.level is Level.ERROR for finding in found.values())
    assert all(f"{key}={value}" in found[key].message for key, value in wrong.items())
    assert missing_files(view_of(sound_run)) == []


def test_the_similar_name_of_a_reward_file_is_shown(sound_run, tmp_path):
    (tmp_path / "my_reward.py").touch()
    [found] = missing_files(view_of(sound_run, f"reward.custom_reward_function.path={tmp_path}/my_rewrd.py"))
    assert "did you mean my_reward.py?" in found.message


def test_a_model_that_the_run_does_not_set_is_said_to_be_a_default(sound_run):
    [found] = missing_files(view_of([word for word in sound_run if f"{MODEL}.path" not in word]))
    assert found.where == f"{MODEL}.path" and "a default that the run does not set" in found.message


def test_data_and_models_that_are_not_needed_here_are_not_checked(sound_run):
    wrong = [f"{MODEL}.path=/no/model", "data.train_files=/no/data.parquet"]
    found = missing_files(view_of(sound_run, *wrong, need_files=False))
    assert summary(found) == [("data.train_files", Level.NOT_CHECKED), (f"{MODEL}.path", Level.NOT_CHECKED)]


def test_a_pattern_stands_for_the_files_that_verl_reads(sound_run, tmp_path):
    """`datasets` opens the same files for the same name, with as many rows."""
    import datasets

    folder = tmp_path / "of patterns"  # the run's own files lie beside it
    for name in ("b/two.parquet", "a/one.parquet", "a/.hidden.parquet", "a/not.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name, [row(truth("1")), row(truth("2"))])
    for pattern in ("*/*.parquet", "**/*.parquet", "a/on?.parquet", "[ab]/[a-z]*.parquet"):
        view = view_of(sound_run, f"data.train_files='{folder}/{pattern}'")
        assert missing_files(view) == [], pattern
        read = datasets.load_dataset("parquet", data_files=f"{folder}/{pattern}", cache_dir=str(tmp_path / "cache"))[
            "train"
        ]
        assert view.complete("data.train_files") and view.rows == len(read), pattern


def test_a_pattern_without_a_match_is_named_as_one(sound_run, tmp_path):
    [finding] = missing_files(view_of(sound_run, f"data.train_files='{tmp_path}/no/*.parquet'"))
    assert finding.level is Level.ERROR and "no file matches this pattern" in finding.message
    odd = tmp_path / "a[1].parquet"
    write(odd, [row(truth("1"))])
    assert missing_files(view_of(sound_run, f"data.train_files='{odd}'")) == []  # a file of that very name


def test_a_name_with_one_slash_may_be_on_a_hub():
    assert not looks_local("Qwen/Qwen2.5-3B-Instruct") and not looks_local("gpt2")
    assert looks_local("runs/kk/model") and looks_local("./model") and looks_local("~/model")


def test_validation_on_training_data_is_a_warning(sound_run, tmp_path):
    (tmp_path / "link.parquet").symlink_to(tmp_path / "train.parquet")
    view = view_of(sound_run, f"data.val_files=[{tmp_path}/test.parquet,{tmp_path}/link.parquet]")
    [finding] = data_findings(view)
    assert (finding.where, finding.level) == ("data.val_files", Level.WARNING)
    assert f"{tmp_path}/train.parquet" in finding.message
    assert data_findings(view_of(sound_run)) == []


def test_a_file_in_which_no_ground_truth_can_be_read_is_an_error(sound_run, tmp_path):
    def found(*golds):
        rows = [row(i, data_source="gsm8k") | truth(gold) for i, gold in enumerate(golds)]
        view = view_of(sound_run, f"data.train_files={write(tmp_path / 'gsm.parquet', rows)}")
        return [each for each in data_findings(view) if "gsm" in each.message]

    solutions = [f"{k}+4=<<{k}+4={k + 4}>>{k + 4}\n#### {k + 4}" for k in range(200)]
    *single, whole = found(*solutions)
    assert all(each.level is Level.WARNING for each in single) and "row 0: " in single[0].message
    assert whole.level is Level.ERROR and "200 of 200 ground truths" in whole.message
    for wrong, error in ((80, False), (100, True)):
        *single, last = found(*solutions[:wrong], *map(str, range(200 - wrong)))
        assert ((last.level is Level.ERROR) == error) and f"{wrong - 3} more findings" in " ".join(
            each.message for each in [*single, last]
        )
    assert found(*"789") == []


SOURCES = ("kk_3ppl", "openai/gsm8k", "cities")


def rows_of(source, split="train"):
    """Twenty rows of a data source, with ground truths of its kind."""
    kind = {} if str(source).startswith("kk") else None
    return [row(i, split, data_source=source) | (truth(str(i)) if kind is None else kind) for i in range(20)]


def sources_refused(sound_run, tmp_path, *overrides, source="trgrpo_trainer"):
    """Return the data sources for which the findings say that there is no reward."""
    files = [write(tmp_path / f"{i}.parquet", rows_of(name)) for i, name in enumerate(SOURCES)]
    overrides = [
        *sound_run,
        "actor_rollout_ref.rollout.name=vllm",
        *overrides,
        f"data.train_files=[{','.join(map(str, files))}]",
    ]
    found = [finding.message for finding in data_findings(RunView(composed(overrides, source)))]
    return [name for name in SOURCES if any(f"{name!r}" in message for message in found)]


def test_data_sources_without_a_reward_are_errors(sound_run, tmp_path):
    own = "reward.custom_reward_function.path=own.py"
    assert sources_refused(sound_run, tmp_path) == ["cities"]
    assert sources_refused(sound_run, tmp_path, source="ppo_trainer") == ["kk_3ppl", "cities"]
    assert sources_refused(sound_run, tmp_path, own, source="ppo_trainer") == []


def test_a_default_reward_scores_the_data_sources_without_one(sound_run, tmp_path):
    key = "reward.custom_reward_function.reward_kwargs.default_reward"
    assert sources_refused(sound_run, tmp_path, f"+{key}=math") == []
    [finding] = data_findings(view_of(sound_run, f"+{key}=maths"))
    assert (finding.where, finding.level) == (key, Level.ERROR)
    assert f"{key}=maths" in finding.message and "did you mean math?" in finding.message


def test_many_data_sources_without_a_reward_are_counted(sound_run, tmp_path):
    write(tmp_path / "train.parquet", [row(i, data_source=f"own_{i:02}") for i in range(12)])
    found = data_findings(view_of(sound_run))
    assert len(found) < 12 and "'own_00'" in found[0].message and "9 more" in found[-1].message


def test_the_empty_data_source_of_deepscalers_script_is_mathematics(sound_run, tmp_path):
    write(tmp_path / "train.parquet", rows_of(""))
    [finding, *_] = data_findings(view_of(sound_run))
    assert (finding.where, finding.level) == ("data.train_files", Level.WARNING)
    assert "row 0 and 19 more" in finding.message and "scored as math" in finding.message
    assert data_findings(view_of(sound_run, f"+{DEFAULT_REWARD_KEY}=math"))[:1] != [finding]


def test_what_data_check_says_of_a_whole_file_is_said_of_a_run(sound_run, tmp_path):
    write(tmp_path / "train.parquet", [row(i % 20) for i in range(200)])
    repeated, *_ = data_findings(view_of(sound_run))
    assert (repeated.where, repeated.level) == ("data.train_files", Level.WARNING)
    assert "20 different prompts in 200 rows" in repeated.message
    write(tmp_path / "train.parquet", [row(i) | {"reward_model": row(i + 1)["reward_model"]} for i in range(200)])
    shifted, *_, others = data_findings(view_of(sound_run))
    assert (
        shifted.level is others.level is Level.ERROR and "oliver1" in shifted.message and "197 more" in others.message
    )
    write(tmp_path / "train.parquet", [row(i) for i in range(200)])
    write(tmp_path / "test.parquet", [row(i % 20, "test") for i in range(200)])
    assert data_findings(view_of(sound_run)) == [], "test files repeat problems to sample more responses"


@pytest.mark.parametrize("source", [None, ""])
def test_a_data_source_without_a_name_is_an_error(sound_run, tmp_path, source):
    for name in ("train", "test"):
        write(tmp_path / f"{name}.parquet", rows_of(source, name))
    view = RunView(composed([*sound_run, "actor_rollout_ref.rollout.name=vllm"], "ppo_trainer"))
    errors = [found for found in summary(data_findings(view)) if found[1] is Level.ERROR]
    assert errors == [("data.train_files", Level.ERROR), ("data.val_files", Level.ERROR)]


# What replaces row 3 of five -> a part of the error, which names the row.
ROWS = {
    "no prompt": ({"prompt": None}, "prompt"),
    "no reward_model": ({"reward_model": None}, "reward_model"),
    "no ground truth": ({"reward_model": {"style": "rule", "ground_truth": None}}, "ground_truth"),
    "an empty ground truth": ({"reward_model": {"style": "rule", "ground_truth": " "}}, "ground_truth"),
    "no data source": ({"data_source": None}, "data_source"),
}
TRUTHS = {
    "strings": ("nq", (["x"], [])),
    "numbers": ("math", (1.0, float("nan"))),
    "answers of a search": ("nq", ({"target": ["x"]}, {"target": []})),
}


@pytest.mark.parametrize("kind", TRUTHS)
def test_an_empty_ground_truth_of_another_type_is_an_error(sound_run, tmp_path, kind):
    source, golds = TRUTHS[kind]
    write(tmp_path / "train.parquet", [row(i, data_source=source) | truth(gold) for i, gold in enumerate(golds)])
    [finding] = data_findings(view_of(sound_run))
    assert finding.level is Level.ERROR and "row 1: reward_model.ground_truth" in finding.message


def test_a_reward_function_of_the_run_s_own_may_do_without_ground_truths(sound_run, tmp_path):
    write(tmp_path / "train.parquet", [row(0), row(1) | truth(None)])
    own = "reward.custom_reward_function.path=own.py"
    unchecked = ("reward.custom_reward_function.path", Level.NOT_CHECKED)
    assert summary(data_findings(view_of(sound_run, own))) == [("data.train_files", Level.WARNING), unchecked]
    write(tmp_path / "train.parquet", [row(0), row(1, reward_model=None)])
    assert summary(data_findings(view_of(sound_run, own))) == [("data.train_files", Level.ERROR), unchecked]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@pytest.mark.parametrize("key", ["data.train_files", "data.val_files"])
@pytest.mark.parametrize("name", ROWS)
def test_what_rows_lack_is_an_error_with_file_and_row(sound_run, tmp_path, name, key, suffix):
    changes, part = ROWS[name]
    good, bad = tmp_path / f"good{suffix}", tmp_path / f"bad{suffix}"
    write(good, [row(i) for i in range(10, 15)])
    write(bad, [*(row(i) for i in range(3)), row(3, **changes), row(4)])
    [finding] = data_findings(view_of(sound_run, f"{key}=[{good},{bad}]"))
    assert (finding.where, finding.level) == (key, Level.ERROR)
    assert finding.message.startswith(f"{key}={bad} row 3") and part in finding.message


def test_only_a_run_that_reads_ground_truths_needs_them(sound_run, tmp_path):
    write(tmp_path / "train.parquet", [row(0) | truth(None)])
    judge = ["reward.reward_model.enable=true", "reward.custom_reward_function.path=null"]
    assert summary(data_findings(view_of(sound_run))) == [("data.train_files", Level.ERROR)]
    assert data_findings(view_of(sound_run, *judge)) == []


def test_a_column_that_is_missing_or_of_another_type_is_an_error(sound_run, tmp_path):
    """tests/data/test_verl_files.py has every type, and the columns that veRL uses itself."""
    write(tmp_path / "train.parquet", [{"prompt": row(0)["prompt"]}])
    [finding, index] = data_findings(view_of(sound_run, "data.val_files=[]"))
    assert "data_source, reward_model" in finding.message and "extra_info" in index.message
    write(tmp_path / "train.parquet", [row(0)])
    write(tmp_path / "test.parquet", [row(0, extra_info="x")])
    [finding] = data_findings(view_of(sound_run))
    assert (finding.where, finding.level) == ("data.val_files", Level.ERROR)
    assert f"{tmp_path}/test.parquet: extra_info is string" in finding.message


def test_files_that_do_not_fit_together_are_an_error(sound_run, tmp_path):
    write(tmp_path / "more.parquet", [row(0) | truth(1.5)])
    files = f"data.train_files=[{tmp_path}/train.parquet,{tmp_path}/more.parquet]"
    [finding] = [each for each in data_findings(view_of(sound_run, files)) if "cast" in each.message]
    assert finding.level is Level.ERROR and "reward_model.ground_truth" in finding.message
    assert f"data.train_files={tmp_path}/more.parquet" in finding.message
    # Training and validation files are not loaded together.
    found = data_findings(view_of(sound_run, f"data.val_files={tmp_path}/more.parquet"))
    assert not any("cast" in each.message for each in found)


@pytest.mark.parametrize(("name", "part"), [("a[1].parquet", "pattern"), ("a.arrow", ".parquet, .json, .jsonl")])
def test_a_path_that_verl_reads_in_another_way_is_an_error(sound_run, tmp_path, name, part):
    shutil.copy(tmp_path / "train.parquet", tmp_path / name)
    [finding] = data_findings(view_of(sound_run, f"data.train_files=['{tmp_path}/{name}']"))
    assert finding.level is Level.ERROR and name in finding.message and part in finding.message


def test_a_home_directory_is_not_expanded(sound_run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    [finding] = missing_files(view_of(sound_run, "data.train_files='~/train.parquet'"))
    assert finding.level is Level.ERROR and f"{tmp_path}/train.parquet" in finding.message
    assert summary(missing_files(view_of(sound_run, "data.train_files='~/x'", need_files=False))) == [
        ("data.train_files", Level.NOT_CHECKED)
    ]


AGENT = "actor_rollout_ref.rollout.agent"


def agents(sound_run, path, names, *overrides):
    """Return the findings about rows with these names of agent loops."""
    write(path, [row(i, agent_name=name) for i, name in enumerate(names)])
    return data_findings(view_of(sound_run, *overrides))


def test_agent_loops_of_rows_are_those_of_the_run(sound_run, tmp_path):
    path = tmp_path / "train.parquet"
    assert agents(sound_run, path, ["single_turn_agent", "tool_agent"]) == []
    [finding] = agents(sound_run, path, ["single_turn_agent", "trgrpo_search", "trgrpo_search"])
    assert finding.level is Level.ERROR and "row 1 and 1 more: agent_name is 'trgrpo_search'" in finding.message
    assert agents(sound_run, path, ["trgrpo_search"], "agent=search_tags") == []
    [finding] = agents(sound_run, path, ["single_turn_agent", None])
    assert finding.level is Level.ERROR and "row 1: agent_name is null" in finding.message
    [finding] = agents(sound_run, path, ["own"], f"+{AGENT}.agent_loop_manager_class=own.Manager")
    assert (finding.where, finding.level) == (f"{AGENT}.agent_loop_manager_class", Level.NOT_CHECKED)


def test_a_file_without_agent_names_beside_one_with_them_gets_null(sound_run, tmp_path):
    files = f"data.train_files=[{tmp_path}/train.parquet,{tmp_path}/more.parquet]"
    [finding] = agents(sound_run, tmp_path / "more.parquet", ["single_turn_agent"], files)
    assert finding.level is Level.ERROR and f"{tmp_path}/train.parquet: lacks the column agent_name" in finding.message


def test_the_default_agent_loop_is_one_of_the_run_and_files_of_loops_and_tools_can_be_read(sound_run, tmp_path):
    tools = "actor_rollout_ref.rollout.multi_turn.tool_config_path"
    for key, value in {
        f"{AGENT}.default_agent_loop": "single_turn",
        f"{AGENT}.agent_loop_config_path": f"{tmp_path}/none.yaml",
        tools: f"{tmp_path}/none.yaml",
    }.items():
        [finding] = data_findings(view_of(sound_run, f"{key}={value}"))
        assert (finding.where, finding.level) == (key, Level.ERROR) and f"{key}={value}" in finding.message


def test_a_data_set_class_of_the_run_reads_the_files_itself(sound_run, tmp_path):
    (tmp_path / "train.parquet").write_text("anything")
    key = "data.custom_cls.path"
    assert summary(data_findings(view_of(sound_run, f"{key}=own.py"))) == [(key, Level.NOT_CHECKED)]


def test_a_model_on_a_hub_is_not_checked_and_a_local_one_is_opened(sound_run, tmp_path):
    assert model_findings(view_of(sound_run)) == []
    for name in ("Qwen/Qwen2.5-3B", "models/Qwen2.5-3B"):  # the second may be a directory that is missing
        [finding] = model_findings(view_of(sound_run, f"{MODEL}.path={name}"))
        assert finding.level is Level.NOT_CHECKED and "no such directory here" in finding.message
    model = shutil.copytree(CHECKPOINT, tmp_path / "model")
    (model / "config.json").write_text("{")
    [finding] = model_findings(view_of(sound_run, f"{MODEL}.path={model}"))
    assert finding.level is Level.ERROR and f"{MODEL}.path={model}" in finding.message


def test_modules_of_an_adapter_are_modules_of_the_model(sound_run):
    def found(modules, rank=4):
        lora = [f"{MODEL}.lora_rank={rank}", f"{MODEL}.target_modules={modules}"]
        return summary(model_findings(view_of(sound_run, *lora)))

    assert found("[q_proj,self_attn.v_proj]") == found("all-linear") == found("[q_prj]", rank=0) == []
    assert found("[q_proj,q_prj,attn.v_proj]") == [(f"{MODEL}.target_modules", Level.ERROR)] * 2


def test_modules_of_the_user_s_own_that_do_not_exist_are_errors(monkeypatch):
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "json, no_such_module, no_such.module")
    found = module_findings()
    assert summary(found) == [("VERL_USE_EXTERNAL_MODULES", Level.ERROR)] * 2
    assert "no_such_module:" in found[0].message and "no_such.module:" in found[1].message


def test_a_check_copies_no_model_into_shared_memory(sound_run, tmp_path):
    model = shutil.copytree(CHECKPOINT, tmp_path / "model")
    copy = Path("/dev/shm/verl-cache", hashlib.md5(str(model).encode()).hexdigest())  # where veRL would put it
    check(composed([*sound_run, f"{MODEL}.path={model}", f"{MODEL}.use_shm=true"]))
    assert not copy.exists()


def test_ground_truths_beyond_the_limit_are_not_checked_and_what_says_so_has_the_numbers(
    sound_run, tmp_path, monkeypatch
):
    monkeypatch.setattr("verl_trgrpo.checks.data_files._MOST", 10)
    write(tmp_path / "train.parquet", [row(i) for i in range(50)])
    [finding] = data_findings(view_of(sound_run, f"data.val_files={write(tmp_path / 'few.parquet', [row(99)])}"))
    assert (finding.where, finding.level) == ("data.train_files", Level.NOT_CHECKED)
    assert "10 of 50 rows were scored" in finding.message
