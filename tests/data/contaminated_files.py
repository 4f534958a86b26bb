"""What the tests of contamination need: texts, files of them as prompts, and the findings in short."""

import random

import pyarrow as pa
import pyarrow.parquet as pq


def texts(count, words=30, seed=0, alphabet="abcdefghij"):
    """Random texts whose words hardly ever meet."""
    rng = random.Random(seed)
    return [" ".join("".join(rng.choices(alphabet, k=8)) for _ in range(words)) for _ in range(count)]


def row(i, content, split="train", **extra):
    return {
        "data_source": "math",
        "prompt": [{"role": "user", "content": content}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(i)},
        "extra_info": {"index": i, "split": split, **extra},
    }


def write(path, contents, **extra):
    pq.write_table(pa.Table.from_pylist([row(i, content, **extra) for i, content in enumerate(contents)]), path)
    return path


def pairs(found):
    return [(match.train_row, match.test_file, match.test_row, match.reason) for match in found.matches]
