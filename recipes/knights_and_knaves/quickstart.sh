#!/usr/bin/env bash
# The quickstart as a script: a tiny warm-started Qwen2 learns three-person puzzles on two cores.
#
# Differs from the paper in everything but the objective: model (0.9 M parameters instead of 3 B), puzzles (3 people
# instead of 3 to 7), prompt (no instructions), steps and learning rate. It shows the machinery at work, not the paper's
# result.
#
#   bash recipes/knights_and_knaves/quickstart.sh                    TR-GRPO
#   ALGORITHM=grpo SEED=1 bash recipes/knights_and_knaves/quickstart.sh trainer.total_training_steps=10
set -euo pipefail

ALGORITHM=${ALGORITHM:-tr_grpo}
SEED=${SEED:-0}
OUT=${OUT:-runs/quickstart}

verl-trgrpo quickstart --out "$OUT" --seed "$SEED" "algorithm=$ALGORITHM" "$@"
