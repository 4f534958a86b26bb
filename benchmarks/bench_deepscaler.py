"""Measure data_prep/deepscaler.py on as many rows as DeepScaleR's train set has.

Writes made-up rows of realistic length to a temporary deepscaler.json, runs the real script on it in a process of its own,
and reports that process's seconds and peak memory: ``python benchmarks/bench_deepscaler.py --out deepscaler.json``.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = [
    "Let $x$ be a number",
    r"such that \frac{1}{2}",
    "of all",
    r"\sqrt{n}",
    "digits",
    "is the sum",
    "in",
    "for $n$ 7",
]


def write_rows(path: Path, count: int) -> None:
    """Write `count` different problems of 60 to 700 characters with solutions of about 1,500 characters.

    One by one: a child's peak memory starts at its parent's, so this process has to stay small.
    """
    rng = random.Random(0)

    def text(shortest: int, longest: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(shortest, longest) // 11))

    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            problem = f"Problem {number}: {text(60, 700)}?"
            row = {"problem": problem, "answer": str(rng.randint(-999, 999)), "solution": text(750, 2250)}
            file.write(("," if number else "[") + json.dumps(row) + "\n")
        file.write("]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_315, help="default 40315, as in DeepScaleR")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "deepscaler.json")
        write_rows(source, arguments.rows)
        words = [sys.executable, str(ROOT / "data_prep" / "deepscaler.py"), "--source", str(source)]
        words += ["--out", f"{directory}/out"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        start = time.perf_counter()
        _, status, usage = os.wait4(os.posix_spawn(sys.executable, words, environment), 0)
        if status:
            raise SystemExit(f"the script failed with status {os.waitstatus_to_exitcode(status)}")
        figures = {
            "rows_read": arguments.rows,
            "source_mib": round(source.stat().st_size / (1 << 20), 1),
            "seconds": round(time.perf_counter() - start, 2),
            "peak_rss_mib": round(usage.ru_maxrss / (1 << 10 if sys.platform == "linux" else 1 << 20)),
        }
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
