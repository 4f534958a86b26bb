"""``verl-trgrpo analyze``: what token weights do to the gradients of a checkpoint, and how sharp its loss is."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

_EPILOG = """\
examples:
  verl-trgrpo analyze --model runs/kk/tr_grpo/global_step_100 --data data/kk/train.parquet
  verl-trgrpo analyze --model DIR --data train.parquet --shaping sigmoid linear:alpha=0.3 sigmoid:reverse=true
  verl-trgrpo analyze --model Qwen/Qwen2.5-0.5B-Instruct --data train.parquet --parameters layers.23 --device cuda
  verl-trgrpo analyze --sharpness --model runs/grpo/global_step_50 runs/tr_grpo/global_step_50 --data train.parquet

Samples responses at temperature 1 and measures, for every token, the norm of its gradient at the logits, and by the chosen
parameters; the share of each quarter of the tokens in it, before and after weighting; and the angles between the quarters'
updates. --out receives gradients.json and gradients.png, or sharpness.json. See docs/analysis.md for what each figure means.
Exit code: 0 fine, 1 a token is outside the envelope, 2 wrong input, 130 interrupted.
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "analyze",
        help="measure the gradients of a checkpoint's tokens before and after weighting, or its sharpness",
        description="Measure the gradients of a checkpoint's own rollouts, token by token, or the sharpness of its loss.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--model", nargs="+", required=True, metavar="DIR", help="checkpoint, model directory or hub name"
    )
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="prompts (parquet)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: runs/analyze/MODEL")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: %(default)s)")
    sampling = parser.add_argument_group("rollouts")
    sampling.add_argument("--prompts", type=int, default=16, metavar="N", help="default: %(default)s")
    sampling.add_argument(
        "--samples", type=int, default=8, metavar="N", help="responses to each (default: %(default)s)"
    )
    sampling.add_argument(
        "--max-tokens", type=int, default=512, metavar="N", help="of a response (default: %(default)s)"
    )
    sampling.add_argument("--seed", type=int, default=0, help="of prompts, sampling and directions (default: 0)")
    _add_gradients(parser.add_argument_group("gradients"))
    _add_sharpness(parser.add_argument_group("sharpness"))


def _add_gradients(gradients: argparse._ArgumentGroup) -> None:
    gradients.add_argument(
        "--shaping", nargs="+", default=["sigmoid"], metavar="NAME[:P=V,...]", help="default: sigmoid, TR-GRPO's"
    )
    gradients.add_argument(
        "--parameters", default="all", metavar="NAME", help="part of parameters' names, such as layers.3 (default: all)"
    )
    gradients.add_argument(
        "--tokens",
        type=int,
        default=2000,
        metavar="N",
        help="most tokens with an own backward pass (default: %(default)s)",
    )
    gradients.add_argument(
        "--quarters",
        choices=("range", "tokens"),
        default="range",
        help="group tokens by quarters of the range of p, or into four groups of equal size (default: %(default)s)",
    )


def _add_sharpness(sharpness: argparse._ArgumentGroup) -> None:
    sharpness.add_argument("--sharpness", action="store_true", help="measure this instead, for each MODEL")
    sharpness.add_argument(
        "--radius",
        type=float,
        nargs="+",
        default=[1e-4, 1e-3, 1e-2],
        metavar="R",
        help="length of a perturbation over the norm of the parameters (default: 0.0001 0.001 0.01)",
    )
    sharpness.add_argument(
        "--directions", type=int, default=8, metavar="N", help="random ones, each in both senses (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.analysis.rollouts import RolloutOptions
    from verl_trgrpo.evaluation.checkpoint import find_model

    for name in arguments.model:
        find_model(name)
    if len(arguments.model) > 1 and not arguments.sharpness:
        raise ValueError(
            f"gradients are measured for one model at a time, not {len(arguments.model)}; or add --sharpness"
        )
    sampling = RolloutOptions(arguments.prompts, arguments.samples, arguments.max_tokens, arguments.seed)
    out = arguments.out or Path("runs") / "analyze" / "-".join(Path(arguments.model[0]).parts[-2:]).lstrip("/")
    facts = {
        "command": "sharpness" if arguments.sharpness else "gradients",
        "data": str(arguments.data),
        "device": arguments.device,
        **vars(sampling),
    }
    measure = _sharpness if arguments.sharpness else _gradients
    return measure(arguments, sampling, out, facts)


def _gradients(arguments: argparse.Namespace, sampling: Any, out: Path, facts: dict[str, Any]) -> int:
    from verl_trgrpo.analysis.run import GradientOptions, analyze_gradients, open_model
    from verl_trgrpo.analysis.show import gradient_text, plot_gradients
    from verl_trgrpo.common.progress import interruptible

    options = GradientOptions(tuple(arguments.shaping), arguments.parameters, arguments.tokens, arguments.quarters)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer, model = open_model(arguments.model[0], arguments.device, out)
    with interruptible() as progress:
        figures, table = analyze_gradients(tokenizer, model, arguments.data, sampling, options, progress)
    _write(out / "gradients.json", {**facts, "model": arguments.model[0], **figures})
    title = f"{arguments.model[0]}: {figures['tokens']:,} tokens of {sampling.prompts * sampling.samples} responses"
    picture = plot_gradients(figures, table, out / "gradients.png", title)
    print(gradient_text(figures))
    print(f"\n{out / 'gradients.json'}, {picture}")
    return int(not figures["envelope"]["holds"])


def _sharpness(arguments: argparse.Namespace, sampling: Any, out: Path, facts: dict[str, Any]) -> int:
    from verl_trgrpo.analysis.run import analyze_sharpness, open_model
    from verl_trgrpo.analysis.show import sharpness_text
    from verl_trgrpo.common.progress import interruptible

    out.mkdir(parents=True, exist_ok=True)
    found = {}
    with interruptible() as progress:
        for name in arguments.model:
            tokenizer, model = open_model(name, arguments.device, out)
            try:
                found[name] = analyze_sharpness(
                    tokenizer, model, arguments.data, sampling, arguments.radius, arguments.directions, progress
                )
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error  # one of several
    models = {name: [sharpness.as_dict() for sharpness in radii] for name, radii in found.items()}
    _write(out / "sharpness.json", {**facts, "relative_radii": arguments.radius, "models": models})
    print(sharpness_text(found))
    print(f"\n{out / 'sharpness.json'}")
    return 0


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
