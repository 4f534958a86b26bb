"""A training that is dead without having ended, and failures in plain words."""

import pytest

from verl_trgrpo.runs.launch.hints import hints
from verl_trgrpo.runs.launch.log_watch import EngineDeadError, LogWatch
from verl_trgrpo.runs.launch.run import _failure

DEAD = "(vLLMHttpServer pid=1) ERROR vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_a_dead_engine_has_its_grace_and_no_more(tmp_path, clock):
    log = tmp_path / "log"
    watch = LogWatch(log, grace=30, clock=clock)
    watch.check_alive()  # there is no log yet
    log.write_text("step:1\n" + DEAD)
    clock.now = 100.0
    watch.check_alive()
    clock.now = 130.0
    watch.check_alive()
    clock.now = 130.5
    watch.look()  # a training that has ended may have said anything
    with pytest.raises(EngineDeadError, match="veRL did not end"):
        watch.check_alive()


@pytest.mark.parametrize("cut", range(0, len(DEAD), 7))
def test_a_word_that_is_written_in_two_goes_is_seen(tmp_path, clock, cut):
    log = tmp_path / "log"
    watch = LogWatch(log, grace=0, clock=clock)
    for part in (DEAD[:cut], DEAD[cut:]):
        with log.open("a") as file:
            file.write(part)
        watch.check_alive()
    clock.now = 1.0
    with pytest.raises(EngineDeadError):
        watch.check_alive()


def test_a_healthy_log_is_no_matter_how_long_ago(tmp_path, clock):
    log = tmp_path / "log"
    watch = LogWatch(log, grace=30, clock=clock)
    for step in range(3):
        with log.open("a") as file:
            file.write(f"step:{step}\n")
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


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598",
        "RuntimeError: basic_ios::clear: iostream error",
        "OSError: [Errno 28] No space left on device: 'data.pt'",
    ],
)
def test_a_full_disk_is_named_in_plain_words(tmp_path, error):
    (tmp_path / "log").write_text(f"Traceback (most recent call last):\n{error}\n")
    message = _failure(tmp_path / "log", 1)
    assert error in message and f"MiB are free at {tmp_path}; make room" in message


def test_torch_says_of_a_full_disk_what_is_recognised(tmp_path):
    import torch

    (tmp_path / "full.pt").symlink_to("/dev/full")
    for size in (1, 100_000):
        with pytest.raises(RuntimeError) as caught:
            torch.save({"weight": torch.zeros(size)}, tmp_path / "full.pt")
        assert any("could not be written" in hint for hint in hints([str(caught.value)], tmp_path))


def test_an_error_of_another_kind_has_no_hint(tmp_path):
    assert hints(["ValueError: tau", "The actor died because of an error raised in its creation task"], tmp_path) == []


def test_an_engine_that_died_amid_a_rollout_is_named(tmp_path):
    """veRL ends by itself then, and speaks of its replay buffer."""
    lines = [
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the cause.",
        "RuntimeError: Sync replay buffer selected terminal groups with no materializable trajectories.",
    ]
    [hint] = hints(lines, tmp_path)
    assert hint.startswith("vLLM's engine process died")
