"""A judge of hostile code: without rights, replaced when it dies, nothing kept between answers that may change it."""

import os

import pytest

from verl_trgrpo.tasks.judge import RENEW_AFTER, Judge


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


@pytest.mark.parametrize("action", ["exit", "crash", "loop", "tower", "memory"])
def test_what_ends_a_worker_is_reported_and_the_next_question_is_answered(judge, action):
    assert works(judge)
    pid = judge.process.pid
    with pytest.raises(TimeoutError):
        judge.ask(action, limit=0.3)
    assert works(judge)
    assert judge.process.pid == pid, "only the worker is replaced"


def test_a_value_that_is_not_a_number_is_an_error(judge):
    with pytest.raises(TimeoutError):
        judge.ask("text", limit=5.0)
    assert works(judge)


def test_state_lasts_until_a_worker_is_renewed_or_a_question_is_asked_alone(judge):
    def count(**options):
        return judge.ask("count", limit=5.0, **options)[0]

    judge.close()
    assert [count() for _ in range(3)] == [1, 2, 3]
    assert [count(alone=True) for _ in range(3)] == [1, 1, 1]
    assert count() == 1
    assert max(count() for _ in range(RENEW_AFTER)) <= RENEW_AFTER
