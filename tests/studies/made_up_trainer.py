"""A trainer for the tests of the runner: it takes the flags of studies/trainer.py and writes made-up metrics."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
for name in ("train", "test", "model", "out"):
    parser.add_argument(f"--{name}", type=Path)
parser.add_argument("--seed", type=int)
parser.add_argument("--height", type=float)
parser.add_argument("--resume", action="store_true")
parser.add_argument("--fail-once", default="")
parser.add_argument("--wait", type=float, default=0.0)
arguments = parser.parse_args()
attempt = len(list(arguments.out.glob("metrics-*.jsonl"))) + 1
with (arguments.out / f"metrics-{attempt}.jsonl").open("w") as file:
    for step in range(3):
        accuracy = arguments.height * step / 2 + 0.01 * arguments.seed
        data = {"val-core/kk_3ppl/acc/mean@1": accuracy, "actor/grad_norm": 1.0 + step}
        file.write(json.dumps({"step": step, "data": data}) + "\n")
        file.flush()
print("model", arguments.model)
if arguments.wait:
    print("waiting", flush=True)
    time.sleep(arguments.wait)
if arguments.fail_once == "SIGKILL":
    os.kill(os.getpid(), signal.SIGKILL)
if arguments.fail_once and attempt == 1:
    sys.exit(f"planted failure: {arguments.fail_once}")
