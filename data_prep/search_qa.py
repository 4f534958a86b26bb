"""Command line: build a data set of questions with short answers, for training with search.

For example ``python data_prep/search_qa.py --out data/search_qa --source hf --val-per-set 100``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from verl_trgrpo.common.progress import Progress
from verl_trgrpo.data import command
from verl_trgrpo.data.build import BuildResult
from verl_trgrpo.tasks.search_qa.build import TRAIN_SETS, SearchQaOptions, build
from verl_trgrpo.tasks.search_qa.prompts import LOOPS
from verl_trgrpo.tasks.search_qa.sources import HUB_DATASET, HUB_REVISION, SETS


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="search_qa.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Write Search-R1's questions as DIR/train.parquet and DIR/test.parquet for veRL, with\n"
        "DIR/manifest.json. The tests take a set's test split, else dev, else train.\n\n"
        "  python data_prep/search_qa.py --out data/search_qa --source hf --val-per-set 100\n"
        "  python data_prep/search_qa.py --out data/nq --source FlashRAG_datasets --train-sets nq --test-sets nq bamboogle",
        epilog="Here --limit counts the questions of each set, and --num-proc makes no difference: one process is fastest.\n"
        "Train rows of a set that ask the same question become one row that accepts the answers of all; the tests keep\n"
        "every row. --source hf has been run on a local copy of the repository's\n"
        "layout, not against the hub itself.",
    )
    _add_sources(parser)
    parser.add_argument(
        "--train-sets",
        nargs="*",
        metavar="SET",
        help=f"sets to train on, none for no train file (default: those of {' and '.join(TRAIN_SETS)} that the source has)",
    )
    parser.add_argument(
        "--test-sets",
        nargs="*",
        metavar="SET",
        help=f"sets to test on, none for no test file (default: those of {', '.join(SETS)} that the source has)",
    )
    _add_form(parser)
    command.add_common_arguments(parser)
    return parser.parse_args(argv)


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source",
        default="hf",
        metavar="SOURCE",
        help="hf (the default: the FlashRAG collection on the hub), or a file or directory with its rows (question, "
        "golden_answers, id) as nq/train.jsonl or nq_train.jsonl; also .jsonl.gz, .json and .parquet",
    )
    parser.add_argument(
        "--hf-dataset",
        default=HUB_DATASET,
        metavar="NAME",
        help=f"with --source hf: name, or a directory with a copy of its repository (default {HUB_DATASET}, licence "
        "CC BY-SA 4.0)",
    )
    parser.add_argument(
        "--revision", default=HUB_REVISION, help=f"with --source hf: commit, branch or tag (default {HUB_REVISION})"
    )


def _add_form(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--loop",
        choices=tuple(LOOPS),
        default="search_tags",
        help="search_tags (the default): this project's agent loop over <search> tags; tool_agent: veRL's own loop with a "
        "tool named search",
    )
    parser.add_argument("--system", action="store_true", help="put the instruction into a system message")
    parser.add_argument(
        "--val-per-set",
        type=int,
        metavar="N",
        help="also write DIR/val.parquet with N test questions of each set, drawn with the seed, for frequent validation",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 built or already there, 2 for an error that the user can correct, 130 interrupted."""
    arguments = vars(parse_arguments(argv))
    for name in ("train_sets", "test_sets"):
        arguments[name] = None if arguments[name] is None else tuple(arguments[name])

    def run(progress: Progress) -> tuple[Path, BuildResult]:
        options = SearchQaOptions(**arguments)
        return options.out, build(options, progress)

    return command.run_builder("search_qa.py", run)


if __name__ == "__main__":
    sys.exit(main())
