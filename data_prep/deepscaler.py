"""Command line: build DeepScaleR's train set and its five test sets for veRL.

For example ``python data_prep/deepscaler.py --out data/deepscaler --source hf --on-error skip``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from verl_trgrpo.common.progress import Progress
from verl_trgrpo.data import command
from verl_trgrpo.data.build import BuildResult
from verl_trgrpo.tasks.math.build import DeepscalerOptions, build
from verl_trgrpo.tasks.math.prompts import INSTRUCTION, INSTRUCTION_ROLES
from verl_trgrpo.tasks.math.sets import SETS, HubData

DESCRIPTION = r"""Write DeepScaleR's problems as DIR/train.parquet and its test sets AIME 2024, AMC 2023, MATH-500,
Minerva and OlympiadBench as DIR/aime2024.parquet and so on, with DIR/manifest.json. All files have one schema, with
ground truths that are lists of texts of which any is right, so that veRL can read several of them in one run."""

EPILOG = r"""
examples:
  from the hub (rows without an answer are dropped and counted):
    python data_prep/deepscaler.py --out data/deepscaler --source hf
  from a directory with deepscaler.json, aime.json, amc.json, math.json, minerva.json, olympiad_bench.json (or .jsonl,
  .jsonl.gz, .parquet; also prepared files such as aime_test.parquet or this script's own, from whose prompts
  DeepScaleR's instruction and yours are removed first):
    python data_prep/deepscaler.py --out data/deepscaler --source downloads/deepscaler
  only two test sets, 50 rows of each, without an instruction:
    python data_prep/deepscaler.py --out data/probe --sets math500 minerva --limit 50 --instruction none

repetitions: within a set, a problem that occurs again with the same answer is dropped; where the answers differ, all its
copies are dropped. Both are counted. Train problems that are also test problems stay; a note counts them.

on the hub (not run against the hub when this was written; where the defaults fail, give --hf-dataset):
"""


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    hub = "\n".join(f"  {name}={_written(math_set.hub)}" for name, math_set in SETS.items())
    parser = argparse.ArgumentParser(
        prog="deepscaler.py",
        description=DESCRIPTION,
        epilog=EPILOG + hub,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--source",
        default="hf",
        metavar="SOURCE",
        help="hf (default, the Hugging Face hub), a directory with a file for each set, or one file: that of a "
        "test set where it has the name of one (aime.json), otherwise of train problems",
    )
    parser.add_argument(
        "--sets",
        nargs="+",
        default=[],
        metavar="SET",
        help=f"which to build: {', '.join(SETS)} (default: all that the source has)",
    )
    parser.add_argument(
        "--hf-dataset",
        action="append",
        default=[],
        metavar="SET=REPO[@REVISION][:[CONFIGURATION/]SPLIT]",
        help="with --source hf: take this set from another repository, or from a directory with a copy of one. "
        "Repeatable. Revision: a commit, branch or tag",
    )
    parser.add_argument(
        "--revision",
        metavar="REVISION",
        help="with --source hf: commit, branch or tag of the train set; for other sets see --hf-dataset",
    )
    parser.add_argument(
        "--instruction",
        default=INSTRUCTION,
        metavar="TEXT",
        help=f'appended to each problem; none for none (default, as DeepScaleR does it: "{INSTRUCTION}")',
    )
    parser.add_argument(
        "--instruction-role",
        choices=INSTRUCTION_ROLES,
        default="user",
        help="user (default): after the problem; system: in a system message of its own",
    )
    command.add_common_arguments(parser)
    return parser.parse_args(argv)


def _written(hub: HubData) -> str:
    place = "/".join(part for part in (hub.configuration, hub.split) if part)
    return f"{hub.dataset}@{hub.revision}:{place}"


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 built or already there, 2 for an error that the user can correct, 130 interrupted."""
    arguments = vars(parse_arguments(argv))
    arguments |= {name: tuple(arguments[name]) for name in ("sets", "hf_dataset")}

    def run(progress: Progress) -> tuple[Path, BuildResult]:
        options = DeepscalerOptions(**arguments)
        return options.out, build(options, progress)

    return command.run_builder("deepscaler.py", run)


if __name__ == "__main__":
    sys.exit(main())
