"""Two-node training on one machine: a rank is killed in the middle, and the run resumes from its last checkpoint.

Each node is a Ray daemon of its own (a raylet with one logical GPU slot, hence one rank) in a network namespace of its
own; a virtual cable joins the two. The quickstart's model trains on Knights-and-Knaves puzzles with ``nnodes=2``. After
the first checkpoint the rank on the second node gets SIGKILL. The same command then resumes, validates before it trains,
and must find what the run had found before: validation decodes greedily, so the score has to be the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from ray_nodes import Node, cluster, descendants, end, namespaces_work, network, wait_for

from verl_trgrpo.runs.compose import quoted
from verl_trgrpo.runs.environment import training_environment
from verl_trgrpo.tiny.puzzle_dataset import build_dataset
from verl_trgrpo.tiny.puzzles import CHECKPOINT

# Title of the process that holds a rank's model and optimizer.
RANK = "ray::WorkerDict"
# Seconds that an attempt may take, and that it may take to notice a dead rank.
ATTEMPT_LIMIT, NOTICE_LIMIT = 600.0, 180.0

_EPILOG = """\
examples:
  python benchmarks/two_nodes.py
  python benchmarks/two_nodes.py --steps 6 --save-freq 3 --network host --out /scratch/two_nodes

Needs Linux, about 12 GiB of free memory, and several minutes on two cores. Where network namespaces are not permitted, both
daemons listen on the machine's own address (--network host). Exit codes: 0 all checks passed, 1 one failed.
"""


def ranks(daemon: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The training ranks below one node's daemon."""
    found = []
    for process in descendants(daemon):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.cmdline() and process.cmdline()[0].startswith(RANK):
                found.append(process)
    return found


def overrides(directory: Path, attempt: int, steps: int, save_freq: int) -> list[str]:
    """veRL's arguments; both attempts have the same, but for where they log."""
    variables = {"VERL_FILE_LOGGER_PATH": metrics_file(directory, attempt)}
    return [
        "--config-name",
        "kk_quickstart",
        "platform=cpu",
        f"data.train_files={quoted(directory / 'data' / 'train.parquet')}",
        f"data.val_files={quoted(directory / 'data' / 'test.parquet')}",
        "data.train_batch_size=8",
        f"actor_rollout_ref.model.path={quoted(CHECKPOINT)}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
        # Large enough that the score moves in two steps.
        "actor_rollout_ref.actor.optim.lr=5e-4",
        # Has to divide the 64 responses over two ranks.
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32",
        # Greedy: the same weights give the same answers.
        "actor_rollout_ref.rollout.val_kwargs.do_sample=false",
        "actor_rollout_ref.rollout.val_kwargs.temperature=0",
        "trainer.nnodes=2",
        "trainer.n_gpus_per_node=1",
        # An existing cluster has its slots from `ray start`.
        "ray_kwargs.ray_init.num_cpus=null",
        "ray_kwargs.ray_init.num_gpus=null",
        # The trainer itself runs on either node, with the environment of that node's daemon.
        *(f"+ray_kwargs.ray_init.runtime_env.env_vars.{key}={quoted(value)}" for key, value in variables.items()),
        f"trainer.total_training_steps={steps}",
        f"trainer.save_freq={save_freq}",
        f"trainer.test_freq={save_freq}",
        "trainer.val_before_train=true",
        "trainer.resume_mode=auto",
        f"trainer.default_local_dir={quoted(directory / 'checkpoints')}",
        f"trainer.validation_data_dir={quoted(directory / f'validation-{attempt}')}",
        "trainer.logger=[console,file]",
        f"hydra.run.dir={quoted(directory / 'hydra')}",
    ]


def metrics_file(directory: Path, attempt: int) -> Path:
    return directory / f"metrics-{attempt}.jsonl"


def start(node: Node, environment: dict[str, str], directory: Path, attempt: int, arguments: Any) -> Any:
    """Start ``python -m verl.trainer.main_ppo`` on a node; returns the process."""
    command = [sys.executable, "-m", "verl.trainer.main_ppo"]
    command += overrides(directory, attempt, arguments.steps, arguments.save_freq)
    return node.popen(command, environment, directory / f"train-{attempt}.log")


def logged(path: Path) -> dict[int, dict[str, float]]:
    """Metrics by step; a line that is being written is left for later."""
    steps = {}
    for line in path.read_text().splitlines() if path.is_file() else []:
        with contextlib.suppress(json.JSONDecodeError):
            entry = json.loads(line)
            steps[entry["step"]] = entry["data"]
    return steps


def score(metrics: dict[str, float]) -> float:
    """Validation accuracy of one step."""
    found = [value for name, value in metrics.items() if name.startswith("val-core/") and "/acc/mean@" in name]
    if len(found) != 1:
        raise RuntimeError(f"expected one validation accuracy, found {len(found)} in {sorted(metrics)}")
    return found[0]


def answers(directory: Path, number: int, step: int) -> dict[str, str]:
    """Answers of one validation by prompt."""
    lines = (directory / f"validation-{number}" / f"{step}.jsonl").read_text().splitlines()
    return {row["input"]: row["output"] for row in map(json.loads, lines)}


def differing(first: dict[str, str], second: dict[str, str]) -> int:
    """How many prompts two validations answered differently."""
    if first.keys() != second.keys():
        raise RuntimeError("the two validations did not ask the same questions")
    return sum(first[prompt] != second[prompt] for prompt in first)


def finish(driver: Any, seconds: float, what: str) -> int:
    """Wait for a driver; returns its exit code, or raises after ``seconds`` once it has been ended."""
    try:
        return driver.wait(seconds)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{what} did not end within {seconds:.0f} s") from None
    finally:
        end(driver)


def train_until_killed(
    nodes: list[Node], daemons: list[Any], environment: dict[str, str], directory: Path, arguments: argparse.Namespace
) -> dict[str, Any]:
    """First attempt: kill the second node's rank right after the first checkpoint has been written and validated."""
    started = time.monotonic()
    driver = start(nodes[0], environment, directory, 1, arguments)
    try:
        metrics = metrics_file(directory, 1)
        wait_for(
            lambda: arguments.save_freq in logged(metrics) or driver.poll() is not None, ATTEMPT_LIMIT, "a checkpoint"
        )
        if driver.poll() is not None:
            raise RuntimeError(
                f"training ended with exit code {driver.returncode} before it was disturbed; see {directory}/train-1.log"
            )
        per_node = [ranks(daemon) for daemon in daemons]
        [victim] = per_node[1]
        victim.kill()
        killed = time.monotonic()
        code = finish(driver, NOTICE_LIMIT, "training that has lost a rank")
    finally:
        end(driver)
    return {
        "ranks per node": [len(found) for found in per_node],
        "seconds to the kill": killed - started,
        "seconds until training noticed": time.monotonic() - killed,
        "exit code": code,
        "last step logged": max(logged(metrics)),
        "checkpoint": int((directory / "checkpoints" / "latest_checkpointed_iteration.txt").read_text()),
    }


def resume(nodes: list[Node], environment: dict[str, str], directory: Path, arguments: argparse.Namespace) -> int:
    """Second attempt, the same command; returns its exit code."""
    driver = start(nodes[0], environment, directory, 2, arguments)
    return finish(driver, ATTEMPT_LIMIT, "the resumed training")


def run(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Both attempts; returns what was found."""
    kind = arguments.network if arguments.network != "auto" else ("namespaces" if namespaces_work() else "host")
    environment = training_environment(True, str(metrics_file(directory, 0)))
    # The token every process of a cluster started with `ray start` has to show.
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    build_dataset(directory / "data")
    with network(kind) as nodes, cluster(nodes, environment, directory) as daemons:
        say(
            f"two Ray nodes ({kind}): {', '.join(node.address for node in nodes)}; training, see {directory}/train-1.log"
        )
        first = train_until_killed(nodes, daemons, environment, directory, arguments)
        say(
            f"rank of node 2 killed after step {first['last step logged']}; training ended {first['exit code']}; resuming"
        )
        wait_for(lambda: not any(map(ranks, daemons)), 60, "the surviving rank to go")
        code = resume(nodes, environment, directory, arguments)
    before, after = logged(metrics_file(directory, 1)), logged(metrics_file(directory, 2))
    step = arguments.save_freq
    return {
        "network": kind,
        **first,
        "exit code of the resumed run": code,
        "steps of the resumed run": sorted(after),
        "score at step 0": score(before[0]),
        "score before the kill": score(before[step]),
        "score after resuming": score(after[step]),
        "answers that training had changed": differing(answers(directory, 1, 0), answers(directory, 1, step)),
        "answers that resuming changed": differing(answers(directory, 1, step), answers(directory, 2, step)),
        "score at the end": score(after[arguments.steps]) if arguments.steps in after else None,
    }


def problems(found: dict[str, Any], arguments: argparse.Namespace) -> list[str]:
    """What is not as it has to be."""
    step = arguments.save_freq
    checks = {
        "each node had one rank": found["ranks per node"] == [1, 1],
        "training ended with an error when a rank died": found["exit code"] != 0,
        f"the last checkpoint was that of step {step}": found["checkpoint"] == step,
        "the resumed run went on from there to the end": found["steps of the resumed run"]
        == list(range(step, arguments.steps + 1))
        and found["exit code of the resumed run"] == 0,
        "the score is the same as before the kill": found["score before the kill"] == found["score after resuming"],
        "the score had moved, so that a lost checkpoint would show": found["score before the kill"]
        != found["score at step 0"],
    }
    return [name for name, passed in checks.items() if not passed]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=3, help="training steps in all (default: %(default)s)")
    parser.add_argument("--save-freq", type=int, default=2, help="the rank dies after this step (default: %(default)s)")
    parser.add_argument("--network", choices=["auto", "namespaces", "host"], default="auto", help="(default: auto)")
    parser.add_argument("--out", type=Path, default=Path("runs/two_nodes"), help="new directory (default: %(default)s)")
    arguments = parser.parse_args()
    directory = arguments.out.resolve()
    wrong = []
    if not 0 < arguments.save_freq < arguments.steps:
        wrong.append(f"--save-freq {arguments.save_freq} must lie between 1 and --steps {arguments.steps} minus 1")
    if directory.exists() and any(directory.iterdir()):
        wrong.append(f"--out {arguments.out} is not empty, and an earlier run would be resumed; choose a new directory")
    if wrong:
        say(f"error: {'; '.join(wrong)}")
        return 2
    directory.mkdir(parents=True, exist_ok=True)
    # Ends the cluster too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = run(arguments, directory)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    (directory / "result.json").write_text(json.dumps(found, indent=2) + "\n")
    for name, value in found.items():
        print(f"{name:36}{value:.1f}" if isinstance(value, float) and "seconds" in name else f"{name:36}{value}")
    for problem in problems(found, arguments):
        print(f"FAILED: {problem}")
    return 1 if problems(found, arguments) else 0


if __name__ == "__main__":
    sys.exit(main())
