"""What the tests of the single-file trainer need: the script as a module, its options for small runs, and a batch."""

import importlib.util
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "recipes" / "minimal" / "train.py"


def load_script():
    spec = importlib.util.spec_from_file_location("minimal_trainer", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


trainer = load_script()


def options(directory, **changes):
    small = {"prompts": 4, "samples": 4, "mini_prompts": 2, "max_tokens": 12, "steps": 2, "test_every": 1, "rows": 5}
    files = {"train": str(directory / "train.parquet"), "test": str(directory / "test.parquet")}
    return trainer.Options(model=str(directory / "model"), out="unused", **{**files, **small, **changes})


def sampled_batch(model, tokenizer, options, n=4):
    rows = trainer.read_rows(options.train, tokenizer)[:4]
    # Frequent tokens end responses early, so that lengths differ.
    ends = [tokenizer.eos_token_id, *range(40)]
    return rows, trainer.sample(model, [row.prompt for row in rows], n, ends, options, "seed"), ends
