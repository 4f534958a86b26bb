#!/usr/bin/env bash
# Search at CPU size: a tiny warm-started Qwen2 learns to answer questions about an invented world with one or two searches.
#
# Differs from the paper in everything but the objective: model (0.9 M parameters instead of 3 B), corpus (2,600 invented
# documents instead of Wikipedia), lexical retrieval, prompt (the question alone), steps and learning rate. It shows index,
# server, agent loop and training at work, not the paper's result.
#
#   bash recipes/search_qa/demo.sh                    TR-GRPO
#   ALGORITHM=grpo SEED=1 bash recipes/search_qa/demo.sh trainer.total_training_steps=10
set -euo pipefail

ALGORITHM=${ALGORITHM:-tr_grpo}
SEED=${SEED:-0}
OUT=${OUT:-runs/search_demo}

verl-trgrpo search demo --out "$OUT" --seed "$SEED" "algorithm=$ALGORITHM" "$@"
