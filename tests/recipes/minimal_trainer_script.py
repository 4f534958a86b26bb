"""What the tests of the single-file trainer need: the script as a module, its options for small runs, and a batch."""

from tests.scripts import ROOT, load_scripts

SCRIPT = ROOT / "recipes" / "minimal" / "train.py"
[trainer] = load_scripts(SCRIPT.parent, SCRIPT.stem)


def options(directory, **changes):
    small = {"prompts": 4, "samples": 4, "mini_prompts": 2, "max_tokens": 12, "steps": 2, "test_every": 1, "rows": 5}
    files = {"train": str(directory / "train.parquet"), "test": str(directory / "test.parquet")}
    return trainer.Options(model=str(directory / "model"), out="unused", **{**files, **small, **changes})


def sampled_batch(model, tokenizer, options, n=4):
    rows = trainer.read_rows(options.train, tokenizer)[:4]
    # Frequent tokens end responses early, so that lengths differ.
    ends = [tokenizer.eos_token_id, *range(40)]
    return rows, trainer.sample(model, [row.prompt for row in rows], n, ends, options, "seed"), ends
