"""``verl-trgrpo eval``: avg@k and pass@k of a checkpoint on test files."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

_SAMPLING = ("k", "temperature", "top_p", "max_tokens")

_EPILOG = """\
examples:
  verl-trgrpo eval --model runs/kk/tr_grpo/global_step_100 --data data/kk/test.parquet --preset kk
  verl-trgrpo eval --model Qwen/Qwen2.5-7B --data data/deepscaler/aime2024.parquet --preset aime --tensor-parallel 2
  verl-trgrpo eval --model models/search-3b --data data/search_qa/test.parquet --preset search_qa \\
      --search url=http://127.0.0.1:8000/retrieve max_searches=4
  verl-trgrpo eval --model DIR --data test.parquet --k 8 --temperature 1.0 --limit 100

DIR is a veRL checkpoint (global_step_N or its actor directory), a Hugging Face directory, or a name on the hub. A sharded
checkpoint is merged once by veRL's own merger, into merged_hf beside its actor directory. --out receives a JSON line for
each response as it finishes, NAME.verdicts.jsonl, report.json and report.txt; the same command again goes on where it
stopped, and one that is complete only scores again. See docs/evaluation.md for presets and intervals.
Exit code: 0 fine, 1 vLLM or the merger failed, 2 wrong input, 130 interrupted.
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "eval",
        help="evaluate a checkpoint on test files: avg@k and pass@k with confidence intervals",
        description="Run a checkpoint through vLLM on test files and report avg@k and pass@k per data source.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("--model", required=True, metavar="DIR", help="checkpoint, model directory or hub name")
    parser.add_argument("--data", type=Path, nargs="+", required=True, metavar="FILE", help="test files (parquet)")
    parser.add_argument(
        "--preset", choices=("greedy", "aime", "kk", "search_qa"), default="greedy", help="default: %(default)s"
    )
    parser.add_argument("--k", type=int, help="samples per prompt (default: the preset's, as the next three)")
    parser.add_argument("--temperature", type=float, metavar="T", help="0 is greedy")
    parser.add_argument("--top-p", type=float, metavar="P", help="nucleus sampling")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="tokens of a response")
    parser.add_argument("--seed", type=int, default=0, help="of sampling, --limit and intervals (default: 0)")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N rows of each file, drawn with the seed")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: runs/eval/MODEL-PRESET")
    parser.add_argument("--tensor-parallel", type=int, default=1, metavar="N", help="GPUs for one model (default: 1)")
    parser.add_argument(
        "--max-model-len", type=int, metavar="N", help="tokens of prompt and response (default: what the data needs)"
    )
    parser.add_argument(
        "--search", nargs="+", default=[], metavar="KEY=VALUE", help="of rows that search; keys as in docs/search.md"
    )


def run(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.common.progress import exit_code, interruptible
    from verl_trgrpo.evaluation.options import PRESETS, EvalOptions, default_out
    from verl_trgrpo.evaluation.run import REPORT, evaluate

    preset = PRESETS[arguments.preset]
    sampling: dict[str, Any] = {name: getattr(arguments, name) for name in _SAMPLING}
    options = EvalOptions(
        model=arguments.model,
        data=tuple(arguments.data),
        out=arguments.out or default_out(arguments.model, arguments.preset),
        **{name: getattr(preset, name) if value is None else value for name, value in sampling.items()},
        seed=arguments.seed,
        limit=arguments.limit,
        tensor_parallel=arguments.tensor_parallel,
        max_model_len=arguments.max_model_len,
        search=_settings(arguments.search),
    )
    try:
        with interruptible() as progress:
            result = evaluate(options, progress)
    except KeyboardInterrupt as interrupt:
        print(f"\ninterrupted; the same command goes on with what is in {options.out}", file=sys.stderr)
        return exit_code(interrupt)
    print(result.table, end="")
    print(f"{options.out / REPORT}: {result.generated:,} responses made now")
    return 0


def _settings(pairs: list[str]) -> dict[str, Any]:
    """Return KEY=VALUE pairs as a dict; numbers become numbers."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise ValueError(f"--search {pair} is not KEY=VALUE, such as topk=3")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings
