"""Options of ``verl-trgrpo data``; apart from what they are for, so that ``--help`` loads neither numpy nor pyarrow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verl_trgrpo.common.findings import raise_invalid


@dataclass(frozen=True)
class CheckOptions:
    """What to check.

    Raises ValueError for files that do not exist, none at all, one given twice, or a limit below 1.

    Args:
        train: parquet files to train on.
        test: parquet files to test on.
        tokenizer: local directory of a model; prompt lengths are then in tokens of its chat template.
        max_prompt_length: limit in tokens; needs the tokenizer.
        no_rewards: leave out whether each data source has a reward, and a response that states the ground truth gets full marks.
        strict: warnings give exit code 1, too.
    """

    train: tuple[Path, ...] = ()
    test: tuple[Path, ...] = ()
    tokenizer: Path | None = None
    max_prompt_length: int | None = None
    no_rewards: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        given = [*self.train, *self.test]
        problems = [] if given else ["no file is given; name parquet files with --train and --test"]
        problems += [f"{path} is not a file; check the path" for path in dict.fromkeys(given) if not path.is_file()]
        if len({path.resolve() for path in given}) < len(given):
            problems.append("a file is given more than once; name each file once")
        if self.max_prompt_length is not None and self.max_prompt_length < 1:
            problems.append(f"max_prompt_length is {self.max_prompt_length}; it must be at least 1 token")
        raise_invalid(problems)


@dataclass(frozen=True)
class ContaminationOptions:
    """What to compare, how strictly, and where the rest goes.

    Raises ValueError for files that do not exist or are given twice, numbers out of range, and an `out` that is one of the
    inputs, is no parquet name, or exists (unless `force`).

    Args:
        train: a parquet file.
        against: test files.
        ngram: words in a run, from 1.
        threshold: share of a test question's words, above 0, at most 1.
        out: parquet file for the rows that are left; without it nothing is written.
        force: replace the file at `out`.
    """

    train: Path
    against: tuple[Path, ...]
    ngram: int = 13
    threshold: float = 0.8
    out: Path | None = None
    force: bool = False

    def __post_init__(self) -> None:
        inputs = (self.train, *self.against)
        problems = [] if self.against else ["no test file is given; name at least one"]
        problems += [f"{path} is not a file; check the path" for path in inputs if not path.is_file()]
        places = [path.resolve() for path in inputs]
        if len(set(places)) < len(places):
            problems.append("a file is given twice; name the train file and each test file once")
        if self.ngram < 1:
            problems.append(f"ngram is {self.ngram}; it must be at least 1 word")
        if not 0 < self.threshold <= 1:
            problems.append(f"threshold is {self.threshold}; it must be above 0 and at most 1")
        if self.out is not None:
            if self.out.suffix != ".parquet":
                problems.append(f"out is {self.out}; veRL tells files by their ending, name it .parquet")
            if self.out.resolve() in places:
                problems.append(f"out is {self.out}, one of the inputs; choose another name")
            elif self.out.exists() and not self.force:
                problems.append(f"{self.out} exists; choose another name, or replace it with --force")
        raise_invalid(problems)
