"""Files that the tests write. All problems were made up for these tests."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq

DEEPSCALER_INSTRUCTION = "Let's think step by step and output the final answer within \\boxed{}."

# In the columns of DeepScaleR's own files. The answers have the types that they have there.
RAW = {
    "deepscaler": [
        {"problem": f"What is ${n} + {n}$?", "answer": str(2 * n), "solution": f"Twice {n}."} for n in range(1, 9)
    ],
    "aime": [{"problem": "Add 20 and 5.", "answer": "025", "year": 2024, "difficulty": 2.0}],
    "amc": [
        {"problem": "What is 71 times 2?", "answer": 142.0, "url": "", "difficulty": 2.5},
        {"problem": "What is 1 less than 0?", "answer": -1.0, "url": "", "difficulty": 2.0},
    ],
    "math": [{"problem": "Halve $x$.", "answer": "\\frac{x}{2}", "difficulty": 1.0, "unique_id": "made/up/1.json"}],
    "minerva": [
        {"problem": "What is 48 divided by 5?", "answer": ["9.6\n"], "type": "Arithmetic (1.0)", "idx": 0},
        {"problem": "What is a third?", "answer": ["1/3", "\\frac{1}{3}\n"], "type": "Arithmetic (1.0)", "idx": 1},
    ],
    "olympiad_bench": [
        {
            "problem": "Square $n$ for\neach $n$.",
            "answer": ["$n^{2}$"],
            "subfield": "Algebra",
            "unit": None,
            "context": None,
        }
    ],
}

# By output file: data source and expected ground truths, worked out by hand from RAW.
EXPECTED = {
    "train.parquet": ("deepscaler", [[str(2 * n)] for n in range(1, 9)]),
    "aime2024.parquet": ("aime2024", [["025"]]),
    "amc2023.parquet": ("amc2023", [["142"], ["-1"]]),
    "math500.parquet": ("math500", [["\\frac{x}{2}"]]),
    "minerva.parquet": ("minerva", [["9.6"], ["1/3", "\\frac{1}{3}"]]),
    "olympiad_bench.parquet": ("olympiad_bench", [["$n^{2}$"]]),
}


def write(path, rows):
    """Write `rows` in the format that the name of `path` says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.name.endswith(".json"):
        path.write_text(json.dumps(rows, indent=4))
    elif path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(lines)
    return path


def write_all(directory, file_type=".json"):
    for name, rows in RAW.items():
        write(directory / f"{name}{file_type}", rows)
    return directory
