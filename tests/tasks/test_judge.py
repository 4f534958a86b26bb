"""A judge of hostile code: without rights, replaced when it dies, nothing kept between answers that may change it."""

import os

import pytest

from verl_trgrpo.tasks.judge import RENEW_AFTER, Judge, _warn_unfiltered


@pytest.fixture(scope="module")
def judge():
    judge = Judge("tests.tasks.hostile_functions:call")
    yield judge
    judge.close()


def works(judge):
    return judge.ask("add", 2, 3, limit=5.0)[0] == 5


@pytest.mark.parametrize(
    "action", ["write", "create", "delete", "connect", "start", "fork", "kill", "raise limits", "raise"]
)
def test_what_needs_a_right_raises(judge, action, tmp_path):
    existing, new = tmp_path / "existing", tmp_path / "new"
    existing.touch()
    argument = {"write": [str(new)], "create": [str(new)], "delete": [str(existing)], "kill": [os.getpid()]}
    assert judge.ask(action, *argument.get(action, []), limit=5.0)[0] is None
    assert existing.exists() and not new.exists()
    assert works(judge)


def test_a_refused_filter_is_one_warning_and_answers_are_judged(judge, caplog, tmp_path):
    _warn_unfiltered.cache_clear()
    judge.close()
    assert works(judge) and not caplog.records
    existing = tmp_path / "existing"
    existing.touch()
    unfiltered = Judge("tests.tasks.refused_filter:call")
    for _ in range(2):
        assert works(unfiltered)
        unfiltered.close()
    assert unfiltered.ask("delete", str(existing), limit=5.0)[0] == 1, "otherwise there is nothing to warn of"
    with pytest.raises(TimeoutError):
        unfiltered.ask("memory", limit=5.0)
    unfiltered.close()
    (warning,) = caplog.messages
    assert "(Invalid argument)" in warning and "limits of memory, time and file size hold" in warning


@pytest.mark.parametrize("action", ["exit", "crash", "loop", "tower", "memory"])
def test_what_ends_a_worker_is_reported_and_the_next_question_is_answered(judge, action):
    assert works(judge)
    pid = judge.process.pid
    with pytest.raises(TimeoutError):
        judge.ask(action, limit=0.3)
    assert works(judge)
    assert judge.process.pid == pid, "only the worker is replaced"


@pytest.mark.parametrize("action", ["text", "NaN", "huge"])
def test_a_value_that_is_not_a_finite_number_is_an_error(judge, action):
    with pytest.raises(TimeoutError):
        judge.ask(action, limit=5.0)
    assert works(judge)


def test_a_worker_that_forges_replies_reaches_no_other_worker(judge):
    """The false replies are read as those to the next questions, and end with their worker."""
    judge.ask("forge", limit=5.0)
    values = [judge.ask("add", 1, 1, limit=5.0)[0] for _ in range(2 * RENEW_AFTER)]
    assert values[RENEW_AFTER:] == [2] * RENEW_AFTER


def test_a_worker_has_no_connection_but_its_own(judge):
    judge.close()
    assert judge.ask("connections", limit=5.0)[0] == 1


def test_state_lasts_until_a_worker_is_renewed(judge):
    judge.close()
    counts = [judge.ask("count", limit=5.0)[0] for _ in range(2 * RENEW_AFTER)]
    assert counts == 2 * [*range(1, RENEW_AFTER + 1)]
