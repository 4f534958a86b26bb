"""Rows without a defect, files of them, and the findings of `check_files` by name."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from verl_trgrpo.curation.data_check import CheckOptions, check_files

# A puzzle, the same with other names, and another one.
STATEMENTS = "(('lying', 1), ('telling-truth', 0), ('and', ('lying', 0), ('telling-truth', 1)))"
RENAMED = "(('telling-truth', 2), ('and', ('telling-truth', 0), ('lying', 2)), ('lying', 0))"
OTHER = "(('lying', 1), ('telling-truth', 0), ('and', ('lying', 0), ('telling-truth', 2)))"


def row(i, split="train", **changes):
    truth = f"(1) Zoey is a knight\n(2) Oliver{i} is a knave"
    made = {
        "data_source": "kk_2ppl",
        "prompt": [{"role": "user", "content": f"Zoey meets Oliver{i} in the {split} file. Who is a knight?"}],
        "ability": "logic",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": i, "split": split},
    }
    return made | changes


def user(content):
    return [{"role": "user", "content": content}]


def write(path, rows):
    """Write rows as JSON or JSON Lines where the name says so, and as Parquet elsewhere; return the path."""
    if path.suffix in (".json", ".jsonl"):
        path.write_text(json.dumps(rows) if path.suffix == ".json" else "\n".join(map(json.dumps, rows)))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def clean(split="train", count=6):
    return [row(i, split) for i in range(count)]


def report(*train, **options):
    return check_files(CheckOptions(train=train, **options))


def results(*train, **options):
    return {check.name: check for check in report(*train, **options).checks}


def truth(value):
    return {"reward_model": {"style": "rule", "ground_truth": value}}
