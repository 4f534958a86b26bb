"""Options, presets and rows: all problems are reported at once, before anything is loaded."""

import pytest

from tests.conftest import composed
from tests.data.checked_files import row, write
from verl_trgrpo.cli.main import main
from verl_trgrpo.data.prompts import default_agent_of
from verl_trgrpo.evaluation.evaluate import evaluate, load_evaluable_rows
from verl_trgrpo.evaluation.options import EvalOptions, presets
from verl_trgrpo.runs.run_directory import write_config
from verl_trgrpo.tasks.task import Sampling


def test_all_problems_come_in_one_message(tmp_path):
    with pytest.raises(ValueError, match="8 problems") as caught:
        EvalOptions(model="", data=(tmp_path / "none",), k=2, top_p=0.0, max_tokens=0, seed=-1, limit=0,
                    tensor_parallel=0)  # fmt: skip
    for part in ("none", "model is empty", "k=2", "top_p=0.0", "seed=-1", "limit=0"):
        assert part in str(caught.value)


def test_presets_are_valid_and_what_is_given_overrides_them(tmp_path):
    file = write(tmp_path / "a.parquet", [row(0)])
    for preset, sampling in presets().items():
        assert EvalOptions(model="model", data=(file,), preset=preset).sampling == sampling
    options = EvalOptions(model="model", data=(file,), preset="aime", max_tokens=4096, temperature=0.7)
    assert options.sampling == Sampling(16, 0.7, 0.95, 4096)


def test_limit_draws_rows_with_the_seed(tmp_path):
    file = write(tmp_path / "a.parquet", [row(0) for _ in range(100)])

    def drawn(limit, seed):
        return [found.position for found in load_evaluable_rows([file], limit, seed)[0]]

    assert drawn(10, 0) == sorted(drawn(10, 0)) == drawn(10, 0) != drawn(10, 1)
    assert drawn(10, 0) != [*range(10)], "the first rows of a sorted file are not a sample"
    assert drawn(1000, 0) == [*range(100)]


def test_rows_that_cannot_be_evaluated_are_named(tmp_path):
    files = {
        "reward": {"data_source": "unheard_of"},
        "agent": {"agent_name": "tool_agent"},
        "prompt": {"prompt": "text"},
    }
    paths = [write(tmp_path / f"{name}.parquet", [row(0, **changes)]) for name, changes in files.items()]
    with pytest.raises(ValueError, match="3 problems") as caught:
        load_evaluable_rows(paths, None, 0)
    assert all(named in str(caught.value) for named in ("'unheard_of'", "agent_name is 'tool_agent'", "prompt.parquet"))
    assert load_evaluable_rows(paths[:1], None, 0, own_rewards=False)[0][0].data_source == "unheard_of"


@pytest.mark.parametrize(
    ("given", "used", "named"),
    [
        (
            {"agent": ("url=http://127.0.0.1:1/retrieve", "max_searches=4")},
            {"agent_name": "trgrpo_search"},
            ["agent=", "no row", "agent_name"],
        ),
        ({"reward": "math"}, {"data_source": "own"}, ["reward=math", "all rows"]),
    ],
)
def test_an_option_that_no_row_uses_is_an_error(tmp_path, given, used, named):
    """Refused before the model, which does not exist, is opened; the model is the error where one row uses the option."""
    rows = [row(0, agent_name="single_turn_agent")] * 3
    options = {"model": str(tmp_path / "none"), "preset": "search_qa", "out": tmp_path / "out", **given}
    with pytest.raises(ValueError) as caught:
        evaluate(EvalOptions(data=(write(tmp_path / "a.parquet", rows),), **options))
    assert all(name in str(caught.value) for name in named)
    assert not (tmp_path / "out").exists()
    with pytest.raises((ValueError, OSError), match="none"):
        evaluate(EvalOptions(data=(write(tmp_path / "b.parquet", [*rows, rows[0] | used]),), **options))


def test_settings_of_the_loop_of_the_rows_are_checked_before_the_model_is_opened(tmp_path):
    file = write(tmp_path / "a.parquet", [row(0, agent_name="trgrpo_search")])
    given = EvalOptions(model=str(tmp_path / "none"), data=(file,), out=tmp_path / "out", agent=("topk=0", "tokp=1"))
    with pytest.raises(ValueError, match="2 problems") as caught:
        evaluate(given)
    assert "topk=0" in str(caught.value) and "tokp" in str(caught.value) and not (tmp_path / "out").exists()


def test_prompts_are_those_of_the_run_that_made_the_checkpoint(tmp_path):
    data = write(tmp_path / "a.parquet", [row(0)])
    checkpoint = tmp_path / "run" / "global_step_3" / "actor"
    checkpoint.mkdir(parents=True)

    def settings(**given):
        return EvalOptions(model=str(checkpoint), data=(data,), **given).prompt_settings("merged")

    assert "data" not in settings()
    overrides = ["agent=search_tags", "+data.apply_chat_template_kwargs.enable_thinking=false"]
    write_config(composed(overrides).config, tmp_path / "run")
    assert settings().data.apply_chat_template_kwargs == {"enable_thinking": False}
    assert settings().actor_rollout_ref.model.path == "merged"
    assert default_agent_of(settings()) == "trgrpo_search"
    given = settings(template=("enable_thinking=true", "effort=low"))
    assert given.data.apply_chat_template_kwargs == {"enable_thinking": True, "effort": "low"}


def test_rows_without_a_name_search_where_the_run_of_the_checkpoint_does(tmp_path):
    data = write(tmp_path / "a.parquet", [row(0)])
    checkpoint = tmp_path / "run" / "global_step_3"
    checkpoint.mkdir(parents=True)
    write_config(composed(["agent=search_tags"]).config, tmp_path / "run")
    options = EvalOptions(model=str(checkpoint), data=(data,), out=tmp_path / "out", agent=("max_searches=4",))
    with pytest.raises(ValueError, match="checkpoint"):  # the rows use the option, and the checkpoint is incomplete
        evaluate(options)


def test_rows_may_have_the_prompt_in_another_column_and_the_loop_of_the_run(tmp_path):
    asked = [{"role": "user", "content": "Is Zoey or Oliver0 a knight?"}]
    for name, loop in ({}, "trgrpo_search"), ({"agent_name": "single_turn_agent"}, "single_turn_agent"):
        path = write(tmp_path / "a.parquet", [row(0, question=asked, **name)])
        [[loaded]] = load_evaluable_rows([path], None, 0, default_agent="trgrpo_search", prompt_key="question")
        assert (loaded.agent_name, loaded.messages) == (loop, asked)


@pytest.mark.parametrize(("column", "value"), [("images", [{"bytes": b"x"}]), ("videos", ["a.mp4"])])
def test_rows_with_what_the_model_would_not_see_are_refused(tmp_path, column, value):
    def loaded(*values):
        rows = [row(i, **{column: each}) for i, each in enumerate(values)]
        return load_evaluable_rows([write(tmp_path / "a.parquet", rows)], None, 0)

    with pytest.raises(ValueError, match=rf"a\.parquet: rows have {column}, which the model would not be shown"):
        loaded(None, value)
    assert len(loaded([], None)[0]) == 2


def test_a_missing_model_is_reported_in_one_line_before_any_work(capsys, tmp_path):
    file, out = write(tmp_path / "a.parquet", [row(0)]), tmp_path / "out"
    assert main(["eval", "--model", str(tmp_path / "gone"), "--data", str(file), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / "gone") in error and error.count("\n") == 1
    assert not out.exists()
