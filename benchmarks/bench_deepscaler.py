"""Measure data_prep/deepscaler.py on as many rows as DeepScaleR's train set has.

Writes made-up rows of realistic length to a temporary deepscaler.json, runs the real script on it in a process of its
own, and reports that process's seconds and peak memory. Exit code 1 where a limit is exceeded, 0 otherwise. Run
``python benchmarks/bench_deepscaler.py --out deepscaler.json``.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
WORDS = (
    "Let $x$ be a number",
    "such that \\frac{1}{2}",
    "of all",
    "\\sqrt{n}",
    "digits",
    "is the sum",
    "in",
    "for $n$ 7",
)


def write_rows(path: Path, count: int, solution_chars: int) -> None:
    """Write `count` different problems of 60 to 700 characters with solutions of about `solution_chars` characters.

    One by one: a child's peak memory starts at its parent's, so this process has to stay small.
    """
    rng = random.Random(0)

    def text(chars: int) -> str:
        return " ".join(rng.choices(WORDS, k=max(1, chars // 11)))

    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            row = {
                "problem": f"Problem {number}: {text(rng.randint(60, 700))}?",
                "answer": str(rng.randint(-999, 999)),
                "solution": text(rng.randint(solution_chars // 2, solution_chars * 3 // 2)),
            }
            file.write(("," if number else "[") + json.dumps(row) + "\n")
        file.write("]")


def run_script(source: Path, out: Path, num_proc: int) -> tuple[float, float]:
    """Return the seconds that the script takes and the peak resident memory in MiB of its largest process."""
    words = [sys.executable, str(ROOT / "data_prep" / "deepscaler.py"), "--source", str(source), "--out", str(out)]
    words += ["--num-proc", str(num_proc)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    start = time.perf_counter()
    child = os.posix_spawn(sys.executable, words, environment)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"the script failed with status {os.waitstatus_to_exitcode(status)}")
    return seconds, usage.ru_maxrss / (1 << 10 if sys.platform == "linux" else 1 << 20)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=40_315, help="default 40315, as in DeepScaleR")
    parser.add_argument("--solution-chars", type=int, default=1500, help="mean length of a solution (default 1500)")
    parser.add_argument("--num-proc", type=int, default=1, help="processes of the script (default 1)")
    parser.add_argument("--max-seconds", type=float, default=60.0, help="default 60")
    parser.add_argument("--max-mib", type=float, default=2048.0, help="peak memory, default 2048")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        source, out = Path(directory, "deepscaler.json"), Path(directory, "out")
        write_rows(source, arguments.rows, arguments.solution_chars)
        seconds, mib = run_script(source, out, arguments.num_proc)
        figures: dict[str, Any] = {
            "rows_read": arguments.rows,
            "rows_written": pq.read_metadata(out / "train.parquet").num_rows,
            "num_proc": arguments.num_proc,
            "source_mib": round(source.stat().st_size / (1 << 20), 1),
            "parquet_mib": round((out / "train.parquet").stat().st_size / (1 << 20), 1),
            "seconds": round(seconds, 2),
            "peak_rss_mib": round(mib),
        }
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    complete = figures["rows_written"] == arguments.rows
    return 0 if complete and seconds <= arguments.max_seconds and mib <= arguments.max_mib else 1


if __name__ == "__main__":
    sys.exit(main())
