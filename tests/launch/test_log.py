"""A training that is dead without having ended, and failures in plain words."""

import pytest
import torch

from verl_trgrpo.launch.log import LogWatch, WorkerDiedError, failure

ENGINE = "(vLLMHttpServer pid=1) ERROR vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"
WORKER = """\
\x1b[36m(WorkerDict pid=12)\x1b[0m ready
\x1b[36m(WorkerDict pid=13)\x1b[0m ready
\x1b[33m(raylet)\x1b[0m A worker died or was killed while executing a task by an unexpected system error. To \
troubleshoot the problem, check the logs for the dead worker. Worker IP address: 10.0.0.1 Worker port: 42279 Worker PID: 13 \
Worker exit type: SYSTEM_ERROR
"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.mark.parametrize("dead", [ENGINE, WORKER])
def test_a_dead_process_has_its_grace_and_no_more(tmp_path, clock, dead):
    log = tmp_path / "log"
    watch = LogWatch(log, grace=30, clock=clock)
    watch.check_alive()  # there is no log yet
    log.write_text("step:1\n" + dead)
    clock.now = 100.0
    watch.check_alive()
    clock.now = 130.0
    watch.check_alive()
    clock.now = 130.5
    watch.look()  # a training that has ended may have said anything
    with pytest.raises(WorkerDiedError, match="had died"):
        watch.check_alive()


MEMORY = """\
\x1b[33m(raylet)\x1b[0m node_manager.cc:3517: 4 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed \
due to other reasons at node (ID: ed8e, IP: 10.0.0.1) over the last time period.
"""


def test_a_training_that_falls_silent_after_workers_were_killed_for_memory_is_dead(tmp_path, clock):
    """Killed workers may have been idle: one that goes on logging is alive."""
    log = tmp_path / "log"
    watch = LogWatch(log, clock=clock)
    log.write_text(MEMORY)
    watch.check_alive()
    for step in range(5):
        clock.now += 1700.0
        with log.open("a") as file:
            file.write(f"step:{step}\n")
        watch.check_alive()
    clock.now += 1800.0
    watch.check_alive()
    clock.now += 1.0
    with pytest.raises(WorkerDiedError):
        watch.check_alive()
    assert "little memory left:" in failure(log)


@pytest.mark.parametrize("cut", range(0, len(ENGINE), 14))
def test_a_message_that_is_written_in_two_parts_is_detected(tmp_path, clock, cut):
    log = tmp_path / "log"
    watch = LogWatch(log, grace=0, clock=clock)
    for part in (ENGINE[:cut], ENGINE[cut:]):
        with log.open("a") as file:
            file.write(part)
        watch.check_alive()
    clock.now = 1.0
    with pytest.raises(WorkerDiedError):
        watch.check_alive()


def test_a_long_silence_alone_is_not_a_death(tmp_path, clock):
    log = tmp_path / "log"
    watch = LogWatch(log, grace=30, clock=clock)
    for step in range(3):
        with log.open("a") as file:
            file.write(f"step:{step}\n")
        watch.check_alive()
        clock.now += 1e6
        watch.check_alive()
    assert not watch.prompts_were_lost


def test_a_prompt_that_was_lost_is_noticed(tmp_path, clock):
    log = tmp_path / "log"
    log.write_text("(AgentLoopWorkerTQ pid=1) Error in _run_prompt for uid=ab\nTraceback\nValueError: bad gold\n")
    watch = LogWatch(log, clock=clock)
    watch.check_alive()
    log.write_text(log.read_text() + "step:1\n")
    watch.check_alive()
    assert watch.prompts_were_lost


LOG = """\
ImportError: flash_attn is not installed, falling back
Exiting the warm-up phase
\x1b[36m(TaskRunnerV1 pid=1)\x1b[0m WARNING: nothing to see
\x1b[36m(Worker pid=2)\x1b[0m Exception raised in creation task: The actor died because of an error
\x1b[36m(Worker pid=2)\x1b[0m Traceback (most recent call last):
\x1b[36m(Worker pid=2)\x1b[0m ray.exceptions.ActorDiedError: The actor died
\x1b[36m(Worker pid=2)\x1b[0m     raise ValueError('tau')
\x1b[36m(Worker pid=2)\x1b[0m ValueError: tau
ray.exceptions.RayTaskError(KeyError): ray::run()
KeyError: 'consequence'
"""
# veRL ends by itself then, and speaks of its replay buffer.
ENGINE_DIED = """\
vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the cause.
RuntimeError: Sync replay buffer selected terminal groups with no materializable trajectories.
"""
# Ray then lists processes; the last lines of the log are about those.
OUT_OF_MEMORY = """\
Traceback (most recent call last):
ray.exceptions.OutOfMemoryError: 5 worker(s) were killed due to the node running low on memory. Memory on the node \
(IP: 192.0.2.2, ID: 000d) was 22.33GB used / 23.54GB limit (0.948715)
Top 10 memory users: PID\tMEM(GB)\tCOMMAND
664\t0.37\tray::RewardLoopWorker
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LOG, ["ValueError: tau", "(finally: KeyError: 'consequence')"]),
        ("torch.cuda.OutOfMemoryError: no memory\n", ["torch.cuda.OutOfMemoryError: no memory"]),
        ("one\ntwo\n", ["one\ntwo"]),
        ("", ["no output"]),
        (WORKER, ["a worker process (WorkerDict) died"]),
        (ENGINE_DIED, ["(vLLM's engine process died: "]),
        (OUT_OF_MEMORY, ["little memory left (22.33GB used / 23.54GB)"]),
    ],
)
def test_failures_name_the_cause_and_the_log(tmp_path, text, expected):
    log_file = tmp_path / "train-1.log"
    log_file.write_text(text)
    message = failure(log_file)
    assert all(part in message for part in expected)
    assert not [part for part in ("ray.exceptions", "flash_attn", "RewardLoopWorker") if part in message]


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_full_disk_is_named(tmp_path, size):
    """torch's own message says something else."""
    (tmp_path / "full.pt").symlink_to("/dev/full")
    with pytest.raises(RuntimeError) as caught:
        torch.save({"weight": torch.zeros(size)}, tmp_path / "full.pt")
    (tmp_path / "log").write_text(f"Traceback (most recent call last):\nRuntimeError: {caught.value}\n")
    assert f"MiB are free at {tmp_path}; free some space" in failure(tmp_path / "log")


NO_NODE = "\x1b[33m(autoscaler +25s)\x1b[0m Error: No available node types can fulfill resource request {}. Add\n"


@pytest.mark.parametrize(
    "wanted", ["{'GPU': 1.0, 'CPU': 3.0}", "defaultdict(<class 'float'>, {'GPU': 1.0, 'CPU': 3.0})"]
)
def test_processes_that_ray_cannot_place_end_the_training_with_their_numbers(tmp_path, clock, wanted):
    (tmp_path / "log").write_text(NO_NODE.format(wanted))
    watch = LogWatch(tmp_path / "log", grace=30, clock=clock)
    watch.check_alive()
    clock.now = 31.0
    with pytest.raises(WorkerDiedError, match="cannot place"):
        watch.check_alive()
    assert "{'GPU': 1.0, 'CPU': 3.0}" in failure(tmp_path / "log")


@pytest.mark.parametrize("text", [ENGINE, WORKER, MEMORY, NO_NODE])
def test_a_response_that_speaks_of_such_messages_ends_nothing(tmp_path, clock, text):
    said = text.rpartition("\x1b[0m")[2].strip()
    (tmp_path / "log").write_text(f"(RewardLoopWorker pid=5) response: the log says {said}\nEngineDeadError: so what\n")
    watch = LogWatch(tmp_path / "log", grace=0, clock=clock)
    watch.check_alive()
    clock.now = 1e6
    watch.check_alive()


def test_escapes_of_a_log_do_not_reach_the_terminal(tmp_path):
    (tmp_path / "log").write_text("one\n\x1b]0;title\x07two\nValueError: \x1b[2Jcleared\n")
    assert not {"\x1b", "\x07"} & set(failure(tmp_path / "log"))
