"""A judge of hostile code: without rights, replaced when it dies, gone with its user, renewed after a number of answers."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_for
from verl_trgrpo.common.sandbox import RENEW_AFTER, Sandbox, _warn_unfiltered
from verl_trgrpo.judge.processes import Judges

FUNCTION = "tests.common.hostile_functions:call"


@pytest.fixture(scope="module")
def judge():
    judge = Sandbox(FUNCTION)
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
    unfiltered = Sandbox("tests.common.refused_filter:call")
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
def test_a_verdict_that_is_not_a_finite_number_is_an_error(action):
    judges = Judges(FUNCTION)
    with pytest.raises(TimeoutError):
        judges.ask(action, limit=5.0)
    assert judges.ask("add", 2, 3, limit=5.0)[0] == 5
    judges.close()


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


def test_a_worker_is_renewed_on_request(judge):
    judge.close()
    counts = [judge.ask("count", limit=5.0, renew=renew)[0] for renew in (False, True, False, False)]
    assert counts == [1, 2, 1, 2]


def test_each_answer_has_its_own_processor_time(judge):
    """Together they take longer than one may by the kernel's limit, which is 2 seconds and twice the limit beyond
    what was used."""
    judge.close()
    assert all(judge.ask("work", 0.05, limit=0.4)[0] == 1 for _ in range(60))


def test_a_reply_that_is_not_finished_ends_its_worker(judge, monkeypatch):
    judge.close()
    assert works(judge)
    with monkeypatch.context() as patch, pytest.raises(TimeoutError):
        patch.setattr("verl_trgrpo.common.sandbox.WALL_SECONDS", 2.0)
        judge.ask("half a reply", limit=0.01)
    assert works(judge)


def test_several_threads_have_several_judges():
    judges = Judges(FUNCTION)
    assert len(judges.judges) == min(4, len(os.sched_getaffinity(0)))
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda n: judges.ask("add", n, 1, limit=5.0)[0], range(40))) == list(range(1, 41))
        started = [judge for judge in judges.judges if judge.process]
        assert started and judges.ask("add", 1, 1, limit=5.0)[0] == 2
    finally:
        judges.close()
    assert not any(judge.process for judge in judges.judges)


def test_one_slow_answer_does_not_hold_up_another():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one judge on one core")
    judges = Judges(FUNCTION)
    try:
        assert judges.ask("add", 2, 3, limit=5.0)[0] == 5
        first, second = judges.judges[:2]
        os.killpg(first.process.pid, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(judges.ask, "add", 1, 1, limit=600.0)
            wait_for(lambda: first in judges._busy)
            assert judges.ask("add", 2, 3, limit=5.0)[0] == 5
            assert second.process and not slow.done()
            os.killpg(first.process.pid, signal.SIGCONT)
            assert slow.result()[0] == 2
    finally:
        judges.close()


def processes_of_session(session):
    """Process ids in a session that still run; one that has ended and was not waited for does not count."""
    running = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, own_session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(own_session) == session and state != "Z":
            running.append(int(stat.parent.name))
    return running


def test_a_killed_judge_is_replaced(judge):
    assert works(judge)
    old = judge.process.pid
    os.kill(old, signal.SIGKILL)
    assert works(judge)
    os.killpg(judge.process.pid, signal.SIGKILL)
    assert works(judge)
    assert judge.process.pid != old
    wait_for(lambda: not processes_of_session(old))


def test_a_silent_judge_is_replaced_and_reported(judge, monkeypatch):
    assert works(judge)
    old = judge.process.pid
    for process in processes_of_session(old):
        os.kill(process, signal.SIGSTOP)
    with monkeypatch.context() as patch, pytest.raises(TimeoutError):
        patch.setattr("verl_trgrpo.common.sandbox.WALL_SECONDS", 0.5)
        judge.ask("add", 2, 3, limit=0.01)
    wait_for(lambda: not processes_of_session(old))
    assert works(judge)


@pytest.mark.parametrize("ending", ["kill", "exit", "interrupt", "kill while it works"])
def test_the_judge_ends_with_its_user(ending):
    works = ending == "kill while it works"
    code = (
        f"import sys; from verl_trgrpo.common.sandbox import Sandbox; judge = Sandbox({FUNCTION!r}); "
        "assert judge.ask('add', 2, 3, limit=5.0)[0] == 5; print(judge.process.pid, flush=True); "
        + ("judge.ask('half a reply', limit=50.0)" if works else "sys.stdin.read()")
    )
    user = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    pid = int(user.stdout.readline())
    assert len(processes_of_session(pid)) == 2  # supervisor and worker
    if ending == "exit":
        user.stdin.close()
    else:
        wait_for(lambda: psutil.Process(user.pid).status() == psutil.STATUS_SLEEPING)  # it asks, or reads
        user.send_signal(signal.SIGINT if ending == "interrupt" else signal.SIGKILL)
    user.wait(timeout=600)
    noise = user.stderr.read()
    user.stdout.close(), user.stderr.close()
    wait_for(lambda: not processes_of_session(pid))
    assert "sandbox" not in noise
    assert ending == "interrupt" or not noise
