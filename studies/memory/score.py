"""Compare the memory plan with recorded cases, one JSON object a line: model, cards, settings, and what happened.

    python -m studies.memory.score CASES.jsonl [--part seen|unseen]

A case has ``id``, ``model``, ``params_b``, ``gpus``, ``gpu_gb``, ``nodes``, ``overrides`` (veRL's keys), ``old_keys`` (those of
older releases), ``outcome`` (fits, gpu_oom, host_oom), ``phase`` and ``confidence``. Scored are cases on cards that state model,
number and size of cards, and a share, a micro-batch or packed tokens. Older releases count a micro-batch over all cards, and
their engine holds prompt plus response where no length is given; the keys are written as 0.9.1 has them.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("cases", type=Path)
    parser.add_argument("--part", choices=["seen", "unseen"])
    options = parser.parse_args()
    from studies.memory.scoring import score  # imports torch

    score(options.cases, options.part)


if __name__ == "__main__":
    main()
