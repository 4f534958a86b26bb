"""Command line: build a Knights-and-Knaves data set for veRL.

For example ``python data_prep/kk.py --out data/kk --people 3 4 5 --train 900 --test 100``.
"""

import argparse
import sys
from collections.abc import Sequence

from verl_trgrpo.common.progress import Progress
from verl_trgrpo.data.command import add_common_arguments, run_builder
from verl_trgrpo.tasks.knights_and_knaves.build import build
from verl_trgrpo.tasks.knights_and_knaves.options import PAPER_PEOPLE, PAPER_TEST, PAPER_TRAIN, KkDatasetOptions
from verl_trgrpo.tasks.knights_and_knaves.prompts import PROMPT_STYLES
from verl_trgrpo.tasks.knights_and_knaves.sources import HUB_DATASET, HUB_REVISION

DESCRIPTION = """\
Write Knights-and-Knaves puzzles as DIR/train.parquet and DIR/test.parquet for veRL, with DIR/manifest.json. Every puzzle
has exactly one solution and occurs once, also up to names and order: no test puzzle is in the train file in other words.
"""

EXAMPLES = f"""\
examples:
  python data_prep/kk.py --out data/kk --people 3 4 5 --train 900 --test 100
      900 train and 100 test puzzles of each of three sizes, generated
  python data_prep/kk.py --out data/kk --paper
      the paper's merge: {PAPER_TRAIN} train and {PAPER_TEST} test puzzles with each of {PAPER_PEOPLE[0]} to \
{PAPER_PEOPLE[-1]} people
  python data_prep/kk.py --out data/kk --paper --source hf
      the same from the public data set: fewer where it repeats puzzles or trains on test puzzles
  python data_prep/kk.py --out data/kk --mix 3=1000 5=500 7=200 --test 100
      another number of train puzzles for each size
  python data_prep/kk.py --out data/kk --people 3 --train 900 --test 100 --with-reasoning
      also DIR/sft_train.parquet and DIR/sft_test.parquet for a warm start with veRL's trainer for fine-tuning:
      torchrun -m verl.trainer.sft_trainer data.train_files=DIR/sft_train.parquet ...

--source hf has been run on a local copy of the data set's layout, not against the hub itself.
"""


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="kk.py", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_arguments(parser)
    _add_sizes(parser.add_argument_group("how many puzzles"))
    _add_sources(parser.add_argument_group("where they come from"))
    group = parser.add_argument_group("what is written")
    group.add_argument(
        "--prompt",
        choices=PROMPT_STYLES,
        default="paper",
        help="paper (default): instructions and the quiz in English; short: only the statements, for tiny models",
    )
    group.add_argument("--system", action="store_true", help="put the instructions into a system message")
    group.add_argument(
        "--test-per-size",
        action="store_true",
        help="write the test puzzles of each size as DIR/test_3ppl.parquet ... as well; not needed for accuracy per size "
        "in training, because veRL groups the validation of DIR/test.parquet by its column data_source",
    )
    group.add_argument(
        "--with-reasoning",
        action="store_true",
        help="write DIR/sft_train.parquet and DIR/sft_test.parquet as well: the same rows with a column messages, whose "
        "last message reasons and answers; the reasoning is the source's (columns cot_head, cot_repeat_steps, cot_foot) "
        "or, for generated puzzles, a search with backtracking in words",
    )
    return parser.parse_args(argv)


def _add_sizes(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--people", type=int, nargs="+", default=[], metavar="P", help="numbers of people, 2 to 8")
    group.add_argument(
        "--train",
        type=int,
        metavar="N",
        help="train puzzles PER number of people (so 3 sizes give 3 N); left out: all that files or the hub have",
    )
    group.add_argument(
        "--test",
        type=int,
        metavar="M",
        help="test puzzles PER number of people; left out: all that the test files or the hub have",
    )
    group.add_argument(
        "--mix",
        type=_size_and_count,
        nargs="+",
        default=[],
        metavar="P=N",
        help="N train puzzles with P people, in place of --people and --train",
    )
    group.add_argument(
        "--paper",
        action="store_true",
        help=f"--people {' '.join(map(str, PAPER_PEOPLE))} --train {PAPER_TRAIN} --test {PAPER_TEST}, from files or the "
        "hub with --at-most",
    )
    group.add_argument(
        "--at-most",
        action="store_true",
        help="with files or the hub: where repeated puzzles leave fewer than asked for, take these (without it that is "
        "an error)",
    )


def _add_sources(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--source",
        nargs="+",
        default=["generate"],
        metavar="SOURCE",
        help="generate (default, needs no network), hf (the public data set), or .jsonl, .jsonl.gz, .json or .parquet "
        "files in its format; a directory stands for its files, and where it has train and test for both",
    )
    group.add_argument(
        "--test-source",
        nargs="+",
        default=[],
        metavar="FILE",
        help="with files as source: take the test puzzles from these (otherwise the source is split)",
    )
    group.add_argument(
        "--hf-dataset",
        default=HUB_DATASET,
        metavar="NAME",
        help=f"with --source hf: name, or a directory with a copy of its repository (default {HUB_DATASET}; its "
        "licence is CC BY-NC-SA 4.0)",
    )
    group.add_argument(
        "--revision", default=HUB_REVISION, help=f"with --source hf: commit, branch or tag (default {HUB_REVISION})"
    )


def _size_and_count(text: str) -> tuple[int, int]:
    n_people, _, count = text.partition("=")
    try:
        return int(n_people), int(count)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not PEOPLE=COUNT, such as 3=1000") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 built or already there, 2 for an error that the user can correct, 130 interrupted."""
    arguments = vars(parse_arguments(argv))
    for name in ("people", "mix", "source", "test_source"):
        arguments[name] = tuple(arguments[name])

    def run(progress: Progress) -> tuple:
        options = KkDatasetOptions(**arguments)
        return options.out, build(options, progress)

    return run_builder("kk.py", run)


if __name__ == "__main__":
    sys.exit(main())
