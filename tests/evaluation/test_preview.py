"""Previewing a run before it starts."""

import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf

from tests.data.checked_files import write
from verl_trgrpo.cli.main import main
from verl_trgrpo.data.rows import Row
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.evaluation import preview as preview_module
from verl_trgrpo.evaluation.preview import Scored, preview_text
from verl_trgrpo.evaluation.response_store import Response
from verl_trgrpo.tasks.reward_manager import reward_function


def scored(position, sample, score, text="so it is 4", **info):
    row = Row(position, "math", [{"role": "user", "content": f"question {position}"}], "4", {}, "single_turn_agent")
    return Scored(row, Response(position, sample, text, 9, cut=False), score, {"score": score, **info})


def test_rewards_stand_beside_the_responses_and_the_summary_interprets_them():
    found = [scored(0, 0, 1.0, format_ok=1.0), scored(0, 1, 0.0, format_ok=0.0), scored(3, 0, 1.0, format_ok=1.0),
             scored(3, 1, 1.0, format_ok=1.0)]  # fmt: skip
    text = preview_text(found)
    assert text.index("question 0") < text.index("-- reward 0, ") < text.index("question 3")
    assert "4 responses to 2 prompts: mean reward 0.750" in text
    assert "learns nothing: 50%" in text and "reward finds: 25%" in text
    assert "hardly learn" not in text
    assert "hardly learn" in preview_text([scored(0, i, 0.0) for i in range(4)])


def test_the_run_s_own_reward_function_is_called_with_its_options(tmp_path):
    count = f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\n"
    code = "def score(solution_str, factor, **_):\n    return factor * len(solution_str)\n"
    (tmp_path / "own.py").write_text(count + code)
    own = {"path": str(tmp_path / "own.py"), "name": "score", "reward_kwargs": {"factor": 3}}
    for _ in range(2):
        function = reward_function(OmegaConf.create({"reward": {"custom_reward_function": own}}))
        assert function(data_source="x", solution_str="four", ground_truth="", extra_info={}) == 12
    assert (tmp_path / "runs").read_text() == "x"  # one that loads a model, or registers itself, cannot be run again


@pytest.fixture
def sampled(monkeypatch):
    """``sampled(text_of)`` stands in for vLLM: `text_of` a job is the response to it; returns what the engine was asked with."""

    def install(text_of):
        asked = []

        async def answer(options, model, jobs, store, progress):
            asked.append((options, model))
            for job in jobs:
                store.append(job.file, Response(job.row.position, job.sample, text_of(job), 9, cut=False))

        monkeypatch.setattr(preview_module, "make_responses", answer)
        return asked

    return install


def right(job):
    return f"<think>so</think>\n<answer>{job.row.ground_truth}</answer>"


def test_the_sampled_responses_are_shown_with_their_rewards(puzzles, capsys, sampled):
    asked = sampled(lambda job: right(job) if job.sample == 0 else "no answer at all")
    words = [f"data.train_files={puzzles / 'train.parquet'}", f"data.val_files={puzzles / 'test.parquet'}",
             f"actor_rollout_ref.model.path={CHECKPOINT}", "+data.apply_chat_template_kwargs.enable_thinking=false",
             "--prompts", "3", "--samples", "8"]  # fmt: skip
    assert main(["preview", "kk_quickstart", *words]) == 0
    shown = capsys.readouterr().out
    assert "24 responses to 3 prompts: mean reward" in shown
    assert shown.count("-- reward") == 24 and shown.count("the reward found no answer") == 21
    [(options, model)] = asked
    assert model == str(CHECKPOINT) and options.sampling.k == 8
    settings = options.prompt_settings(model)  # prompts are rendered as in the run
    assert settings.data.apply_chat_template_kwargs == {"enable_thinking": False}
    assert settings.actor_rollout_ref.model.path == str(CHECKPOINT)


def test_a_default_reward_scores_the_sources_without_one(puzzles, tmp_path, capsys, sampled):
    rows = pq.read_table(puzzles / "train.parquet").to_pylist()
    write(tmp_path / "own.parquet", [row | {"data_source": "my_puzzles"} for row in rows])
    sampled(right)
    words = ["preview", "kk_quickstart", f"data.train_files={tmp_path / 'own.parquet'}",
             f"data.val_files={puzzles / 'test.parquet'}", f"actor_rollout_ref.model.path={CHECKPOINT}"]  # fmt: skip
    assert main(words) == 2
    assert "'my_puzzles'" in capsys.readouterr().err
    assert main([*words, "--reward", "kk"]) == 0
    assert "mean reward 3.000" in capsys.readouterr().out


def test_missing_files_end_it_before_anything_is_loaded(tmp_path, capsys):
    assert main(["preview", "kk_quickstart", "data.train_files=nowhere.parquet", f"data.val_files={tmp_path}/x"]) == 2
    assert "nowhere.parquet" in capsys.readouterr().err
