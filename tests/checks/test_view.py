"""Data files of a run, which all checks read as veRL opens them."""

import pytest

from tests.conftest import composed
from tests.data.checked_files import write
from verl_trgrpo.checks import view
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.data.questions.ask import open_data_file
from verl_trgrpo.data.rows import SINGLE_TURN, TOOL_AGENT
from verl_trgrpo.runs.keys import REF, ROLLOUT
from verl_trgrpo.tasks.search_qa import SEARCH_AGENT

DEFAULT = "actor_rollout_ref.rollout.agent.default_agent_loop"
TRAIN, VAL = "data.train_files", "data.val_files"
NAMED = [{"agent_name": SINGLE_TURN}, {"agent_name": SEARCH_AGENT}, {"agent_name": SEARCH_AGENT}]
PLAIN = [{"data_source": "a"}]


def data(train, val, *more):
    return RunView(composed([f"{TRAIN}={train}", f"{VAL}={val}", *more]))


@pytest.mark.parametrize("ending", ["parquet", "json", "jsonl"])
def test_rows_and_agents_of_each_kind_of_file(tmp_path, ending):
    named, plain = write(tmp_path / f"named.{ending}", NAMED), write(tmp_path / f"plain.{ending}", PLAIN)
    both = data(named, named, f"{DEFAULT}={TOOL_AGENT}")
    assert both.rows == 3 and both.agents == {SINGLE_TURN, SEARCH_AGENT}, "no row has the default"
    assert both.may_use(SEARCH_AGENT) and both.may_call_tools
    assert data(named, plain, f"{DEFAULT}={TOOL_AGENT}").agents == {SINGLE_TURN, SEARCH_AGENT, TOOL_AGENT}
    assert data(plain, plain).agents == {SINGLE_TURN} and not data(plain, plain).may_use(SEARCH_AGENT)
    assert not data(plain, plain).may_call_tools
    assert data(named, plain, "data.train_max_samples=2").rows == 2


@pytest.mark.parametrize("other", ["none.parquet", "hdfs://host/rows.parquet", "rows.csv", "[]"])
def test_files_that_are_not_known_may_have_any_agent(tmp_path, other):
    named = write(tmp_path / "named.jsonl", NAMED)
    unknown = data(other, named)
    assert unknown.rows is None and unknown.agents == {SINGLE_TURN, SEARCH_AGENT}
    assert (
        unknown.may_use(SEARCH_AGENT)
        and unknown.may_call_tools
        and not unknown.complete(TRAIN, VAL)
        and unknown.complete(VAL)
    )
    assert data(named, other).rows == 3


def test_a_file_is_opened_once(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(view, "open_data_file", lambda path: opened.append(path.name) or open_data_file(path))
    named, bad = write(tmp_path / "named.jsonl", NAMED), write(tmp_path / "bad.csv", PLAIN)
    run = data(f"[{named},{bad}]", named)
    for _ in range(2):
        assert run.agents and run.rows is None and list(map(str, run.files(TRAIN))) == [str(named)]
        assert len(run.opened(TRAIN)) == 2 and len(run.files(TRAIN)) == len(run.opened(VAL)) == 1
    assert opened == ["named.jsonl", "bad.csv"]


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ([], f" {REF}.log_prob_micro_batch_size_per_gpu=2"), ([f"{REF}.log_prob_micro_batch_size=8"], ""),
        ([f"{REF}.log_prob_micro_batch_size_per_gpu=1"], ""), ([f"{REF}.log_prob_use_dynamic_bsz=true"], ""),
    ],
)  # fmt: skip
def test_a_reference_that_has_a_size_gets_no_second_one(given, missing):
    sizes = [f"{REF}.log_prob_use_dynamic_bsz=false", f"{REF}.log_prob_micro_batch_size_per_gpu=null"]
    words = [*sizes, f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=2", *given]
    assert RunView(composed(words)).size_of_reference == missing
