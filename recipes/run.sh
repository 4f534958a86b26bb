#!/usr/bin/env bash
# Trains one recipe with one algorithm, on one machine or several. One script for all; what differs is in the arguments.
#
#   bash recipes/run.sh knights_and_knaves/qwen2.5-3b-instruct                      TR-GRPO
#   bash recipes/run.sh knights_and_knaves/qwen2.5-3b-instruct algorithm=grpo       the baseline
#   bash recipes/run.sh knights_and_knaves/qwen2.5-3b-instruct --dry-run            problems, configuration, steps
#   bash recipes/run.sh --help
set -euo pipefail

# Everything here can be set in the environment.
NNODES=${NNODES:-1}
NODE_RANK=${NODE_RANK:-0}
HEAD_IP=${HEAD_IP:-}
RAY_PORT=${RAY_PORT:-6379}
JOIN_TIMEOUT=${JOIN_TIMEOUT:-600}
BUILD_DATA=${BUILD_DATA:-0}
DATA_SOURCE=${DATA_SOURCE:-hf}

usage() {
    cat <<'TEXT'
usage: bash recipes/run.sh TASK/MODEL [--build-data] [--dry-run] [HYDRA OVERRIDE ...]

  TASK/MODEL     a recipe: recipes/TASK/MODEL.yaml; paths in it are relative to the repository
  --build-data   build the recipe's data files first, where they are not there (or BUILD_DATA=1)
  --dry-run      start nothing: print every problem, what differs from veRL's defaults, and the number of steps
  override       any of Hydra's, e.g. algorithm=grpo trainer.n_gpus_per_node=8 trainer.resume_mode=disable

environment
  NNODES, NODE_RANK, HEAD_IP   several machines: run this on each, with the same arguments; rank 0 is at HEAD_IP
  RAY_PORT, JOIN_TIMEOUT       of the Ray cluster (6379), and seconds to wait for all machines (600)
  DATA_SOURCE                  where builders of public data look: hf, or a directory (hf)

The same command goes on from the latest checkpoint. Exit code: 0 fine, 1 problems or a failed run, 2 wrong input,
130 interrupted. See docs/recipes.md for SLURM and ssh.
TEXT
}

fail() {
    echo "error: $*" >&2
    exit 2
}

recipes() {
    find recipes -mindepth 2 -name '*.yaml' ! -name base.yaml | sed -e 's|^recipes/||' -e 's|\.yaml$||' | sort | paste -s -d ' '
}

build_data() {
    case $1 in
        knights_and_knaves/*) python data_prep/kk.py --out data/kk --paper ;;
        deepscaler/*) python data_prep/deepscaler.py --out data/deepscaler --source "$DATA_SOURCE" ;;
        search_qa/*) python data_prep/search_qa.py --out data/search_qa --source "$DATA_SOURCE" --val-per-set 100 ;;
        *) fail "--build-data does not know the data of $1; build the files yourself, and leave --build-data out" ;;
    esac
}

check_cluster_settings() {
    local number='^[0-9]+$'
    [[ $NNODES =~ $number && $NNODES -ge 1 ]] || fail "NNODES=$NNODES is not a number of machines; give 1 or more"
    [[ $NODE_RANK =~ $number && $NODE_RANK -lt $NNODES ]] \
        || fail "NODE_RANK=$NODE_RANK is not one of 0 to $((NNODES - 1)) (NNODES=$NNODES)"
    [[ $NNODES -eq 1 || -n $HEAD_IP ]] || fail "NNODES=$NNODES needs HEAD_IP, the address of the machine with NODE_RANK=0"
}

# Ray asks for a token where a cluster was started with `ray start`. All machines need the same one: a shared home
# directory, or a copy of ~/.ray/auth_token.
prepare_token() {
    export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
    [[ $RAY_AUTH_MODE == token ]] || return 0
    ray get-auth-token --generate >/dev/null || fail "ray cannot make a token; use ray >= 2.52, or RAY_AUTH_MODE=disabled"
}

check() {
    local code=0
    verl-trgrpo validate "$recipe" "$@" ${overrides[@]+"${overrides[@]}"} || code=$?
    ((code == 0)) || [[ $BUILD_DATA == 1 ]] || echo "note: run.sh builds missing data files with --build-data" >&2
    ((code == 0)) || exit "$code"
}

# Not `ray symmetric-run` (Ray 2.60), which would do for stop_head, start_head and join:
#   - its `ray stop` ends every Ray process of the user on a machine, those of other runs too; nor does it start beside one
#   - Ctrl-C gives the training a quarter of a second, after which it is killed; SIGTERM leaves Ray's processes behind
#   - it exits with 0 where Ray does not start, and after Ctrl-C
#   - a worker ends with a traceback where the head is not up within a minute, and the head may build data first

# Ends the Ray node that this script started, and no other.
stop_head() {
    kill "$head_pid" 2>/dev/null || true
    wait "$head_pid" 2>/dev/null || true
}

start_head() {
    ray start --head --node-ip-address="$HEAD_IP" --port="$RAY_PORT" --include-dashboard=false --block &
    head_pid=$!
    trap stop_head EXIT
    export RAY_ADDRESS="$HEAD_IP:$RAY_PORT"
    python - "$NNODES" "$JOIN_TIMEOUT" <<'PYTHON' || fail "not all $NNODES machines joined $RAY_ADDRESS in $JOIN_TIMEOUT s"
import sys
import time

import ray

nodes, timeout = int(sys.argv[1]), float(sys.argv[2])
end = time.monotonic() + timeout
while time.monotonic() < end:
    try:
        if not ray.is_initialized():
            ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
        alive = sum(node["Alive"] for node in ray.nodes())
        print(f"machines: {alive} of {nodes}", file=sys.stderr)
        if alive >= nodes:
            sys.exit(0)
    except (ConnectionError, RuntimeError) as error:
        print(f"waiting for the head: {error}", file=sys.stderr)
    time.sleep(5)
sys.exit(1)
PYTHON
}

# A machine that is not the head lends itself to the cluster until the head is gone.
join() {
    local end=$((SECONDS + JOIN_TIMEOUT)) started
    while ((SECONDS < end)); do
        started=$SECONDS
        ray start --address="$HEAD_IP:$RAY_PORT" --block && return 0
        # A node that had joined notices a minute after the head has stopped, as an error; that is how a run ends here.
        ((SECONDS - started > 30)) && return 0
        sleep 5
    done
    fail "no Ray head at $HEAD_IP:$RAY_PORT within $JOIN_TIMEOUT s; start rank 0, and check the address and the token"
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
name="" dry_run=0 overrides=()
for argument in "$@"; do
    case $argument in
        -h | --help) usage && exit 0 ;;
        --build-data) BUILD_DATA=1 ;;
        --dry-run) dry_run=1 ;;
        -*) fail "unknown option $argument; see --help" ;;
        *=* | ~*) overrides+=("$argument") ;;
        *)
            [[ -z $name ]] || fail "$argument is neither an override (key=value) nor an option; the recipe is $name"
            name=${argument%.yaml}
            name=${name#recipes/}
            ;;
    esac
done
[[ -n $name ]] || { usage >&2 && fail "no recipe given; there are: $(recipes)"; }
recipe=recipes/$name.yaml
[[ -f $recipe && $name != */base && $name != compare/* && $name != chains/* ]] || fail "$recipe is not a recipe; choose one of: $(recipes)"
check_cluster_settings
command -v verl-trgrpo >/dev/null || fail "verl-trgrpo is not on the path; activate its environment, or pip install -e . here"
if ((NNODES > 1)); then
    # What the user gives comes last and wins.
    overrides=("trainer.nnodes=$NNODES" ${overrides[@]+"${overrides[@]}"})
fi

if ((dry_run)); then
    check --show
    exit 0
fi
if ((NODE_RANK > 0)); then
    prepare_token
    join
    exit 0
fi
if [[ $BUILD_DATA == 1 ]]; then
    build_data "$name"
fi
check
if ((NNODES > 1)); then
    prepare_token
    start_head
fi
verl-trgrpo train "$recipe" ${overrides[@]+"${overrides[@]}"}
