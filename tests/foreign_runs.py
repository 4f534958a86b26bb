"""A run directory as somebody else may have made it: small, whole, and with all files that commands read."""

import contextlib
import io
import json
from pathlib import Path

from verl_trgrpo.cli.main import main
from verl_trgrpo.common.options import exit_code
from verl_trgrpo.evaluation.response_store import open_store

# One value of each kind that JSON has, those that break what is done with them, and one that is nested.
ODD = [
    None, True, -1, 1.5, int("9" * 400), float("nan"), "", "\ud800", "a\u202eb\nc\x1b]0;x\x07", "x" * 10_000, [1, None],
    {"a": {"\ud800": 1}}, {"a\x1b[2J\0": "b"}, json.loads("[" * 500 + "]" * 500),
]  # fmt: skip
SETTINGS = {"steps": 3}
RECORD = {
    "trainer": "verl", "algorithm": "tr_grpo", "arm": "tr_grpo", "seed": 0, "settings": SETTINGS, "finished": True,
    "study": {"baseline": "grpo", "primary": "tr_grpo", "margin": 0.1}, "commit": "abc", "versions": {"verl": "0.9.1"},
    "data": {"train": "00", "test": "11"}, "data_files": {"/a.parquet": "1 bytes"}, "trained_for": {"steps": 3},
    "machine": "2 cores", "last_step": 3, "first_prompt": {"text": "hello"}, "signals": [],
}  # fmt: skip
OPTIONS = {
    "arm": "tr_grpo",
    "seed": 0,
    "model": "org/tiny",
    "train": "train.parquet",
    "test": "test.parquet",
    "lr": 0.1,
}
CONFIG = {
    "actor_rollout_ref": {
        "model": {"path": "org/tiny"},
        "actor": {
            "policy_loss": {"loss_mode": "tr_grpo", "shaping": {"name": "linear", "alpha": 2.0}},
            "optim": {"lr": 1e-6},
        },
        "rollout": {"n": 8, "temperature": 1.0},
    },
    "algorithm": {"adv_estimator": "grpo"},
    "data": {"train_files": ["/home/me/train.parquet"], "val_files": "/home/me/test.parquet", "seed": 1},
    "trainer": {"total_epochs": 1},
}
METRICS = [{"step": step, "data": {"actor/lr": 1e-6}} for step in (1, 2, 3)]
RESPONSES = [{"row": n, "sample": 0, "text": "t", "tokens": 3, "cut": False, "extra": {}} for n in range(2)]
DUMP = [{"input": "p", "output": "o", "gts": "g", "score": 1.0, "acc": 1.0}] * 2


def write_run(run: Path, record=RECORD, config=CONFIG, metrics=METRICS, options=None) -> Path:
    """Write one run; a model's directory is its checkpoint."""
    (run / "validation").mkdir(parents=True)
    (run / "run.json").write_text(json.dumps(record))
    (run / "config.yaml").write_text(json.dumps(config))
    if options:
        (run / "options.json").write_text(json.dumps(options))
    write_lines(run / "metrics-1.jsonl", metrics)
    for step in (0, 3):
        write_lines(run / "validation" / f"{step}.jsonl", DUMP)
    (run / "global_step_3").mkdir()
    (run / "global_step_3" / "config.json").write_text("{}")
    return run


def write_lines(path: Path, lines) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def arms(directory: Path) -> Path:
    """Write a run of each of two arms; return one of them."""
    for arm in ("grpo", "tr_grpo"):
        run = write_run(directory / "out" / "runs" / arm / "seed-0", RECORD | {"arm": arm})
    return run


def commands(directory: Path, run: Path) -> dict:
    """The commands that read a run."""
    return {
        "report": ["report", str(run), "--out", str(directory / "page.html")],
        "health": ["health", str(run)],
        "export": ["export", str(run), "--out", str(directory / "exported")],
        "responses": lambda: read_responses(run),
        "compare": ["compare", str(directory / "out")],
    }


def read_responses(run: Path) -> int:
    """Read responses as `eval` does when it goes on."""
    with open_store(run, {}, [Path("answers.parquet")]) as store:
        return len(store.read(0)) - 2


def call(words, logged=None) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed, and `logged` (a caplog) recorded."""
    out, err = io.StringIO(), io.StringIO()
    if logged:
        logged.clear()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = exit_code(words) if callable(words) else main(words)
    return code, out.getvalue() + err.getvalue() + (logged.text if logged else "")
