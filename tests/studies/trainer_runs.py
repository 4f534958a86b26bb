"""What the tests of the trainer of studies need: its options for small runs, and a batch."""

from studies import trainer
from studies.rollouts import sample


def options(directory, **changes):
    small = {"prompts": 4, "samples": 4, "mini_prompts": 2, "max_tokens": 12, "steps": 2, "test_every": 1, "rows": 5}
    files = {"train": str(directory / "train.parquet"), "test": str(directory / "test.parquet")}
    return trainer.Options(model=str(directory / "model"), out="unused", **{**files, **small, **changes})


def sampled_batch(model, tokenizer, options, n=4):
    rows = trainer.read_rows(options.train, tokenizer)[:4]
    # Frequent tokens end responses early, so that lengths differ.
    ends = [tokenizer.eos_token_id, *range(40)]
    return rows, drawn(model, [row.prompt for row in rows], n, ends, options), ends


def drawn(model, prompts, n, ends, options):
    sizes = {"max_tokens": options.max_tokens, "temperature": options.temperature}
    return sample(model, prompts, n, ends=ends, seed="seed", **sizes)
