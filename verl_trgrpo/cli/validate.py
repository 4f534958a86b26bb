"""``verl-trgrpo validate``: everything that is wrong with a configuration, before anything is started."""

from __future__ import annotations

import argparse
import json

from verl_trgrpo.runs.launch.configuration import DEFAULT_CONFIG

_EPILOG = """\
examples:
  verl-trgrpo validate recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml
  verl-trgrpo validate recipes/search_qa/qwen2.5-3b.yaml algorithm=dapo_clip trainer.nnodes=2 --show
  verl-trgrpo validate trgrpo_trainer data.train_files=train.parquet data.val_files=test.parquet ... --json

Composes the configuration as training on accelerators would, wherever it is asked (platform=cpu: as on a machine without
one), builds veRL's dataclasses from it, asks veRL's own validate_config, and compares sizes, lengths, files, rewards, clip
and token weights. All problems come out at once. "Not checked" is what could not be looked at, such as a model on a hub; it
is never counted as passed. Where data and model are elsewhere, --no-files makes missing files "not checked".
Exit code: 0 without errors, 1 with errors, 2 when nothing can be composed.
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "validate",
        help="find everything that is wrong with a recipe or configuration, without starting it",
        description="Check a configuration before a run. Further arguments are Hydra overrides.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", metavar="CONFIG", help=f"a recipe file, or a configuration's name ({DEFAULT_CONFIG})")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides")
    parser.add_argument("--show", action="store_true", help="also print the configuration, batches and memory of a GPU")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--no-files", action="store_true", help='missing data and model files are "not checked"')
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from omegaconf import OmegaConf

    from verl_trgrpo.runs.validation import validate
    from verl_trgrpo.runs.validation.show import details_text, findings_text

    if "=" in arguments.config:
        raise ValueError(f"{arguments.config} is an override, not a configuration; give a recipe file or a name first")
    report = validate(arguments.config, arguments.overrides, need_files=not arguments.no_files)
    if arguments.json:
        content = report.as_dict()
        if arguments.show:
            content["config"] = OmegaConf.to_container(report.config)
        print(json.dumps(content, indent=2))
    else:
        if arguments.show:
            print(details_text(report), end="\n\n")
        print(findings_text(report))
    return 0 if report.ok else 1
