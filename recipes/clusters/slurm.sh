#!/usr/bin/env bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
# Slurm: sbatch recipes/clusters/slurm.sh [RECIPE [OVERRIDES ...]], from the repository. Every machine runs recipes/run.sh.
set -euo pipefail
(($# > 0)) || set -- deepscaler/qwen2.5-7b algorithm=tr_grpo
. .venv/bin/activate
# The first line of each; `| head -n 1` would now and then end the script, as the program before it cannot write on
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
addresses=$(getent ahostsv4 "${nodes%%$'\n'*}")
HEAD_IP=${addresses%% *}
export HEAD_IP NNODES=$SLURM_NNODES
# Since Slurm 22.05 srun does not take over the job's CPUs per task, and would give each node one
srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-64}" bash -c 'NODE_RANK=$SLURM_NODEID exec bash recipes/run.sh "$@"' run "$@"
