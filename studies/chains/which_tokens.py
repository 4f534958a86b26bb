"""Train policies over chains of tokens with rules that say which tokens get the gradient (which_tokens.yaml).

For each network, chain and arm in the declared order: tune, that is train at all learning rates with seeds of their own, and
count, that is train other seeds at the rate that was best for a horizon.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from verl_trgrpo.common.options import exit_code

DESCRIPTION = f"""{__doc__}
example, from a checkout:
  OMP_NUM_THREADS=1 python -m studies.chains.which_tokens --out runs/which_tokens

OUT receives records.jsonl, one line for each network, chain, arm and horizon (part "tuning", with all rates, and part
"counting"), with accuracies of every seed in ten-thousandths, commit, machine and versions; and the start policies, which can be
deleted. The same command goes on after the last line. For the page:
  xz --stdout runs/which_tokens/records.jsonl > studies/chains/records/which_tokens.jsonl.xz && make results
and to go on elsewhere, the other way round:
  mkdir -p runs/which_tokens && xz -dc studies/chains/records/which_tokens.jsonl.xz > runs/which_tokens/records.jsonl

Exit code: 0 fine, 2 wrong input, 130 interrupted."""


def main() -> int:
    parser = argparse.ArgumentParser(description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="directory for records and start policies"
    )
    study = Path(__file__).with_name("which_tokens.yaml")
    parser.add_argument("--study", type=Path, default=study, help="default: %(default)s")
    options = parser.parse_args()
    from studies.chains.which_tokens_study import run_study  # imports torch

    sys.stdout.write(run_study(yaml.safe_load(options.study.read_text()), options.out) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
