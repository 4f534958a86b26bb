"""No verdict of a test hangs on a clock: tests count work (`tests/work.py`) and wait for states (`tests/waiting.py`)."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
_SHORT, _SLEEP = "a short timeout", "a pause"
CLOCKS = {
    *(f"{name}{unit}" for name in ("process_time", "perf_counter", "monotonic", "thread_time", "time") for unit in ("", "_ns")),
    *("timeit", "default_timer", "getrusage", "cpu_times", "clock_gettime", _SHORT, _SLEEP),
}  # fmt: skip
_MODULES = {"time", "timeit", "resource"}
HANG = 600
# In a text that is a program, of Python or of a shell: a pause outside a loop that waits for a state, or a clock.
_PROGRAM = re.compile(
    r"(?<!do )(?<!/)\bsleep[ (](?P<pause>[0-9.]+)|\b(?:process_time|perf_counter|monotonic|time\.time)\("
)
# Where a clock is no verdict.
EXCEPT = {
    "test_clocks.py": "names what it looks for",
    "waiting.py": "the one place that waits",
    "common/hostile_functions.py": "uses up processor time, of which the process under test has a limit",
    "studies/made_up_trainer.py": "stands for a training, which takes its time until it is stopped",
    "retrieval/gated_server.py": "a process of its own that waits for a file",
}


def clocks(source: str) -> list[str]:
    """Return where a source reads a clock, sleeps, or gives a wait so little time that it decides."""
    found = []
    for node in ast.walk(ast.parse(source)):
        words = []
        if isinstance(node, ast.Attribute):
            words = [node.attr] if node.attr != "time" or getattr(node.value, "id", "") == "time" else []
        elif isinstance(node, ast.ImportFrom) and node.module in _MODULES:
            words = [alias.name for alias in node.names]
        elif isinstance(node, ast.Name):
            words = [node.id] if node.id != "time" else []
        elif isinstance(node, ast.Call):
            limits = [each.value for each in node.keywords if each.arg == "timeout"]
            words = [_SHORT for each in limits if isinstance(each, ast.Constant) and (each.value or HANG) < HANG]
            if ast.unparse(node.func).endswith("sleep") and ast.unparse(node.args[0]) != "0":
                words.append(_SLEEP)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            pauses = [each["pause"] or 1 for each in _PROGRAM.finditer(node.value)]
            words = [_SLEEP for each in pauses if 0 < float(each) < HANG]
        found += [f"{node.lineno}: {word}" for word in words if word in CLOCKS]
    return found


def test_no_verdict_hangs_on_a_clock():
    files = {str(path.relative_to(TESTS)): path for path in TESTS.rglob("*.py")}
    read = {name: clocks(path.read_text(encoding="utf-8")) for name, path in files.items() if name not in EXCEPT}
    assert {name: places for name, places in read.items() if places} == {}
    assert files.keys() >= EXCEPT.keys() and all(clocks(files[name].read_text()) for name in EXCEPT)


@pytest.mark.parametrize(
    "line",
    ["time.process_time()", "from time import perf_counter as now", "time.monotonic_ns()", "time.time()", "default_timer()",
     "time.sleep(1)", "await asyncio.sleep(0.1)", "process.wait(timeout=5)", "resource.getrusage(0)",
     "psutil.Process().cpu_times()", "run('import time\\ntime.sleep(3)')", "run(f'exec sleep 5; echo {x}')",
     "run('t = time.time()')"],
)  # fmt: skip
def test_a_clock_is_found(line):
    assert clocks(f"async def test():\n    {line}")


@pytest.mark.parametrize(
    "line",
    ["await asyncio.sleep(0)", "process.wait(timeout=600)", "given(deadline=None)", "row.time", "time = 3",
     "run('time.sleep(3600)')", "run('until [ -e x ]; do sleep 0.1; done')"],
)  # fmt: skip
def test_other_words_are_none(line):
    assert not clocks(f"async def test():\n    {line}")
