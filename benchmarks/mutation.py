"""Mutation testing: change one token of the code, and see whether a fast test notices.

    python benchmarks/mutation.py objective --sample 300 --out objective.jsonl
    python benchmarks/mutation.py objective --again objective.jsonl       # only what survived the first time

The mutations are those of Cosmic Ray plus a few that suit tensor code (see mutants.py). Each runs in a copy of the tree,
in a process forked from one that has already imported torch, which is several times faster than a fresh interpreter.
Linux only. docs/testing.md says how to read the result.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from mutants import Mutant, mutants_of, sample

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Target:
    """Which files to mutate, and which tests have to notice; glob patterns from the root of the tree.

    Left out are tests of time and processes (`not_tests`, and `unless`, a word in their name): slow, and about another matter.
    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    not_tests: tuple[str, ...] = ()
    unless: str = ""


_MATH = "verl_trgrpo/tasks/math/reward"
TARGETS = {
    "objective": Target(
        ("verl_trgrpo/core/objective/*.py",),
        ("tests/core/objective/test_*.py",),
        ("tests/core/objective/test_properties_vanilla.py",),
    ),
    "shaping": Target(("verl_trgrpo/core/shaping/*.py",), ("tests/core/shaping/test_*.py",)),
    "advantages": Target(
        ("verl_trgrpo/core/advantages/*.py",), ("tests/core/advantages/test_*.py",), unless="verls_grpo"
    ),
    "rewards": Target(("verl_trgrpo/tasks/*.py",), ("tests/rewards/test_*.py",), unless="verl_loads"),
    "kk": Target(
        ("verl_trgrpo/tasks/knights_and_knaves/reward.py",),
        ("tests/tasks/knights_and_knaves/test_kk_reward*.py",),
        ("tests/tasks/knights_and_knaves/test_kk_reward_time.py",),
    ),
    "math": Target(
        tuple(f"{_MATH}/{name}.py" for name in ("extract", "form", "number", "latex", "units", "compare", "scorer")),
        ("tests/tasks/math/reward/test_*.py",),
        ("tests/tasks/math/reward/test_math_judge.py",),
        unless="kilobytes or megabyte or bounds_the_time",
    ),
    "search_qa": Target(
        ("verl_trgrpo/tasks/search_qa/reward/*.py",),
        ("tests/tasks/search_qa/reward/test_*.py",),
        ("tests/tasks/search_qa/reward/test_search_qa_against_verl.py",),
        unless="time_is_bounded",
    ),
}


def run_tests(tree: Path, tests: list[str], unless: str, limit: float) -> tuple[str, float]:
    """Outcome of the tests in a forked process: "survived", "killed" or "timeout" (which counts as killed)."""
    sys.stdout.flush()
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (24 << 30, 24 << 30))
        with open(tree / "log.txt", "w") as log:  # noqa: PTH123
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            os.chdir(tree)
            import pytest

            options = ["-x", "-m", "not slow", "--assert=plain", "--hypothesis-seed=0"]
            for plugin in ("_hypothesis_pytestplugin", "no:cacheprovider", "no:unraisableexception"):
                options += ["-p", plugin]
            if unless:
                options += ["-k", f"not ({unless})"]
            try:
                code = int(pytest.main([*options, *tests]))
            finally:
                sys.stdout.flush()
                os._exit(locals().get("code", 1))
    while time.monotonic() - start < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _end_group(child)
            return ("survived" if status == 0 else "killed"), time.monotonic() - start
        time.sleep(0.02)
    _end_group(child)
    os.waitpid(child, 0)
    return "timeout", time.monotonic() - start


def _end_group(leader: int) -> None:
    """End what the tests of one mutant left running, such as the process that compares formulas."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def copy_tree(root: Path, to: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__", "*.safetensors", ".hypothesis")
    for name in ("verl_trgrpo", "hydra_plugins", "tests"):
        shutil.copytree(root / name, to / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(root / name, to / name)


def preload(tree: Path) -> None:
    """Import what takes long, and nothing of this project; children import the copy."""
    sys.dont_write_bytecode = True
    os.environ.update(PYTHONPATH=str(tree), PYTHONDONTWRITEBYTECODE="1", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    sys.path.insert(0, str(tree))
    for name in ("_hypothesis_pytestplugin", "hypothesis.strategies", "numpy", "pytest", "sympy"):
        importlib.import_module(name)
    import hypothesis
    import torch

    torch.set_num_threads(1)
    torch.testing.assert_close(torch.ones(1), torch.ones(1))  # the first call imports much
    # A failure need not be made small or explained.
    hypothesis.settings.register_profile("mutation", phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate])
    hypothesis.settings.load_profile("mutation")
    gc.freeze()
    assert not any(name.split(".")[0] == "verl_trgrpo" for name in sys.modules)


def tests_of(target: Target, root: Path) -> list[str]:
    def found(patterns: tuple[str, ...]) -> set[str]:
        return {str(path.relative_to(root)) for pattern in patterns for path in root.glob(pattern)}

    # Tests of single cases first: they take less time than properties.
    return sorted(found(target.tests) - found(target.not_tests), key=lambda path: ("properties" in path, path))


def choose(target: Target, root: Path, arguments: argparse.Namespace) -> list[Mutant]:
    if arguments.again:
        records = [json.loads(line) for line in arguments.again.read_text().splitlines()]
        names = Mutant.__dataclass_fields__
        return [Mutant(**{name: r[name] for name in names}) for r in records if r["outcome"] == "survived"]
    paths = sorted(str(path.relative_to(root)) for pattern in target.sources for path in root.glob(pattern))
    every = [mutant for path in paths for mutant in mutants_of(path, (root / path).read_text())]
    chosen = sample(every, arguments.sample, arguments.seed)
    print(f"{len(every)} mutants in {len(paths)} files, {len(chosen)} sampled with seed {arguments.seed}", flush=True)
    return chosen


def try_mutants(
    tree: Path, tests: list[str], mutants: list[Mutant], limit: float, options: argparse.Namespace
) -> Counter:
    """Run the tests on one mutant after the other; survivors are printed, all outcomes go to the file `options.out`."""
    counts: Counter[str] = Counter()
    end = time.monotonic() + 60 * options.minutes
    random.Random(options.seed).shuffle(mutants)  # whatever the time allows is a random sample too
    with options.out.open("w") if options.out else contextlib.nullcontext() as out:
        for mutant in mutants:
            if time.monotonic() > end:
                break
            file = tree / mutant.path
            source = file.read_text()
            mutated = mutant.code(source) or source
            if mutated == source:
                continue
            file.write_text(mutated)
            outcome, seconds = run_tests(tree, tests, TARGETS[options.target].unless, limit)
            file.write_text(source)
            counts[outcome] += 1
            lines = zip(mutated.splitlines(), source.splitlines(), strict=False)
            after = next((new.strip() for new, old in lines if new != old), "")
            if out:
                out.write(json.dumps({**asdict(mutant), "after": after, "outcome": outcome, "s": seconds}) + "\n")
                out.flush()
            if outcome == "survived":
                print(f"{mutant.path}:{mutant.line} {mutant.operator.removeprefix('core/')}: {after}", flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--sample", type=int, default=300, help="how many mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: %(default)s)")
    parser.add_argument("--root", type=Path, default=ROOT, help="tree to copy (default: this one)")
    parser.add_argument("--again", type=Path, help="result of an earlier run; only its survivors are run again")
    parser.add_argument("--tests", nargs="+", help="test files to run instead of the target's own, from the root")
    parser.add_argument("--out", type=Path, help="where to write one JSON record per mutant")
    parser.add_argument("--minutes", type=float, default=60, help="stop after so long (default: %(default)s)")
    arguments = parser.parse_args()
    target = TARGETS[arguments.target]
    with tempfile.TemporaryDirectory(prefix="mutation-") as directory:
        tree = Path(directory)
        copy_tree(arguments.root, tree)
        preload(tree)
        tests = arguments.tests or tests_of(target, tree)
        outcome, seconds = run_tests(tree, tests, target.unless, limit=600)
        if outcome != "survived":
            raise SystemExit(f"the tests fail without any mutation:\n{(tree / 'log.txt').read_text()[-3000:]}")
        counts = try_mutants(tree, tests, choose(target, tree, arguments), 20 + 6 * seconds, arguments)
    killed = counts["killed"] + counts["timeout"]
    print(f"{arguments.target}: {killed} of {counts.total()} killed ({counts['timeout']} by the clock)")


if __name__ == "__main__":
    main()
