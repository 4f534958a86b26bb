#!/usr/bin/env bash
# The baseline of run_qwen2_5_3b_kk.sh: GRPO, everything else equal.
set -euo pipefail

ALGORITHM=grpo bash "$(dirname "${BASH_SOURCE[0]}")/run_qwen2_5_3b_kk.sh" "$@"
