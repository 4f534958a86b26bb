"""A training that is dead without having ended, and failures in plain words."""

import re
import tracemalloc
from pathlib import Path

import pytest
import torch
import verl

import verl_trgrpo
from tests.pattern_steps import grows, repeated
from tests.work import counted
from verl_trgrpo.launch.log import (
    ENGINE_DEAD,
    EVENTS,
    LITTLE_MEMORY,
    MEMORY_KILLED,
    NO_NODE,
    PROMPT_LOST,
    STEP,
    WORKER_KILLED,
    LogWatch,
    WorkerDiedError,
    events_in,
    parse_line,
)
from verl_trgrpo.launch.postmortem import failure

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
(vLLMHttpServer pid=7) ERROR 07-29 12:00:00 [async_llm.py:724] vllm.v1.engine.exceptions.EngineDeadError: EngineCore \
encountered an issue. See stack trace (above) for the cause.
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
    assert not [
        part for part in ("ActorDiedError", "RayTaskError", "flash_attn", "RewardLoopWorker") if part in message
    ]


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_full_disk_is_named(tmp_path, size):
    """torch's own message says something else."""
    (tmp_path / "full.pt").symlink_to("/dev/full")
    with pytest.raises(RuntimeError) as caught:
        torch.save({"weight": torch.zeros(size)}, tmp_path / "full.pt")
    (tmp_path / "log").write_text(f"Traceback (most recent call last):\nRuntimeError: {caught.value}\n")
    assert f"MiB are free at {tmp_path}; free some space" in failure(tmp_path / "log")


UNPLACED = "\x1b[33m(autoscaler +25s)\x1b[0m Error: No available node types can fulfill resource request {}. Add\n"


@pytest.mark.parametrize(
    "wanted", ["{'GPU': 1.0, 'CPU': 3.0}", "defaultdict(<class 'float'>, {'GPU': 1.0, 'CPU': 3.0})"]
)
def test_processes_that_ray_cannot_place_end_the_training_with_their_numbers(tmp_path, clock, wanted):
    (tmp_path / "log").write_text(UNPLACED.format(wanted))
    watch = LogWatch(tmp_path / "log", grace=30, clock=clock)
    watch.check_alive()
    clock.now = 31.0
    with pytest.raises(WorkerDiedError, match="cannot place"):
        watch.check_alive()
    assert "{'GPU': 1.0, 'CPU': 3.0}" in failure(tmp_path / "log")


# An example of what each event's speaker says.
SAID = {
    ENGINE_DEAD: ENGINE,
    WORKER_KILLED: WORKER.splitlines()[-1],
    NO_NODE: UNPLACED.format("{'GPU': 1.0}"),
    MEMORY_KILLED: MEMORY,
    LITTLE_MEMORY: OUT_OF_MEMORY.splitlines()[1],
    STEP: "(TaskRunnerV1 pid=1) step:3 - actor/pg_loss:0.1",
    PROMPT_LOST: "(AgentLoopWorkerTQ pid=1) Error in _run_prompt for uid=ab",
}


def actor_classes():
    """Classes that veRL, vLLM's server in it, and this project make actors of."""
    found = {"WorkerDict", "RewardLoopWorker"}
    for package in (verl, verl_trgrpo):
        for path in Path(package.__file__).parent.rglob("*.py"):
            text = path.read_text()
            found |= {*re.findall(r"@ray\.remote(?:\([^\n]*\))?\nclass (\w+)", text)}
            found |= {*re.findall(r"ray\.remote\(([A-Z]\w+)\)", text), *re.findall(r"remote\((v\w+)\)", text)}
    return found


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_an_event_counts_from_its_own_process_alone(event):
    """The same words of any other actor, of the driver, of unknown actors and of tasks are a text."""
    classes = actor_classes()
    assert len(classes) > 15 and {*event.speakers} <= {*classes, "", "raylet", "autoscaler"}
    text = parse_line(SAID[event.name]).text
    for name in [*classes, "", "raylet", "autoscaler", "Anything"]:
        part = name in ("raylet", "autoscaler")
        for front in (f"({name} pid=12)", f"\x1b[36m({name} pid=12, ip=10.0.0.2)\x1b[0m", f"\x1b[33m({name})\x1b[0m"):
            spoken = f"{front} {text}" if name else text
            counts = name in event.speakers and (not part or "pid" not in front)
            lines = {
                spoken: counts,
                f"(RewardLoopWorker pid=5) {spoken}": False,
                f"x\r{spoken}": False,
                f" {spoken}": False,
            }
            for line, expected in lines.items():
                assert (event in [found for found, _ in events_in(parse_line(line))]) == expected, line


# What an actor of Ray 2.60 printed, as it came into the driver's log: lines that look like Ray's, a name of its own choice
# (":actor_name:..."), and a progress bar of Ray whose description has several lines.
FORGED = """\
\x1b[36m(RewardLoopWorker pid=10)\x1b[0m (raylet) A worker died or was killed while executing a task. Worker PID: 10
\x1b[36m(RewardLoopWorker pid=10)\x1b[0m cr\r(raylet) A worker died or was killed while executing a task. Worker PID: 10
\x1b[36m(vLLMHttpServer pid=10)\x1b[0m vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered
\x1b[36m(raylet)\x1b[0m A worker died or was killed while executing a task. Worker PID: 10 pid=10)\x1b[0m hello
\r\x1b[2m\x1b[36m(pid=7, ip=1) \x1b[0md
\x1b[33m(raylet)\x1b[0m A worker died or was killed while executing a task. Worker PID: 10
:   0%|          | 0.00/3.00 [00:00<?, ?it/s]\r       \r\x1b[36m(RewardLoopWorker pid=10)\x1b[0m after
"""


def test_a_forged_line_ends_nothing_while_the_processes_run(tmp_path, clock):
    """Ray lets a text that an actor prints look like another process, so the processes themselves are asked."""
    asked = []
    (tmp_path / "log").write_text(FORGED)
    watch = LogWatch(tmp_path / "log", lambda *sign: bool(asked.append(sign)), grace=30, clock=clock)
    watch.check_alive()
    clock.now = 31.0
    watch.check_alive()
    assert asked == [(10, "vLLMHttpServer", "EngineCor"), (10, "", "")]
    clock.now = 1800.0
    watch.check_alive()
    clock.now = 1801.0
    with pytest.raises(WorkerDiedError):  # but then a log that falls silent is one of a dead training
        watch.check_alive()


def test_an_event_behind_a_progress_bar_of_ray_counts():
    assert [*events_in(parse_line(f"\r{' ' * 80}\r{SAID[WORKER_KILLED]}"))]


def test_no_line_is_searched_in_quadratic_time_or_kept_as_a_whole(tmp_path):
    """The same words over and over cost the work of as many other ones."""
    log = tmp_path / "log"
    phrases = [
        *(parse_line(text).text.strip() for text in SAID.values()),
        f"({'a' * 9} pid=1) ",
        "\r  ",
        "a.",
        "Error",
        "\x1b[0m",
    ]
    fronts = ["", "\x1b[33m(raylet)\x1b[0m ", "(autoscaler +1s) ", "ray.exceptions.OutOfMemoryError: "]

    def write(size):
        log.write_text("\n".join(front + repeated(phrase, size) for phrase in phrases for front in fronts))

    with counted("verl_trgrpo.launch") as work:
        assert not grows(lambda size: (write(10 * size), work.of(failure, log))[1])
    write(200_000)
    tracemalloc.start()
    failure(log)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


def test_a_line_of_any_length_is_one_line(tmp_path):
    """What stands behind the part that is kept is no line of its own."""
    (tmp_path / "log").write_text(f"{'x' * (1 << 20)}{SAID[WORKER_KILLED]}\n{'y' * 65536}{SAID[WORKER_KILLED]}\n")
    assert "died" not in failure(tmp_path / "log")


def test_escapes_of_a_log_do_not_reach_the_terminal(tmp_path):
    (tmp_path / "log").write_text("one\n\x1b]0;title\x07two\nValueError: \x1b[2Jcleared\n")
    assert not {"\x1b", "\x07"} & set(failure(tmp_path / "log"))
