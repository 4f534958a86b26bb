"""Runs as veRL leaves them, made up: known figures, and every run with a noise of its own."""

import json
import math
from pathlib import Path


def metrics(step: int, slope: float, seed: int, weight: float | None = None) -> dict[str, float]:
    """What is logged at a step; validation at even steps."""
    logged = {
        "critic/score/mean": slope * step + 0.01 * seed,
        "actor/grad_norm": 1.0 + 0.1 * ((step + seed) % 3),
        "actor/entropy": 0.5 / (step + 1),
        "response_length/mean": 30.0 + step,
    }
    if weight is not None:
        spread = 0.0 if weight == 1.0 else 0.1
        lower, upper = (1.0, 1.0) if weight == 1.0 else (0.1, 0.7)
        logged |= {
            "actor/tr_weight_mean": weight, "actor/tr_weight_std": spread, "actor/tr_weight_at_lower": lower,
            "actor/tr_weight_at_upper": upper, "actor/tr_grad_share_low_prob": 0.2,
            "actor/tr_grad_share_low_prob_uniform": 0.3 if spread else 0.2,
        }  # fmt: skip
    if step % 2 == 0:
        logged["val-core/kk_3ppl/acc/mean@1"] = 0.3 + slope * step + 0.02 * seed
    return logged


def write_steps(path: Path, steps: dict[int, dict], tail: str = "") -> Path:
    """Write a file of veRL's file logger, NaN as null as it does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"step": step, "data": {n: None if math.isnan(x) else x for n, x in data.items()}}) + "\n"
        for step, data in steps.items()
    ]
    path.write_text("".join(lines) + tail)
    return path


def write_run(directory: Path, slope: float, seed: int = 0, last: int = 6, weight: float | None = None) -> Path:
    """Write a run of steps 0 to `last` whose accuracy is 0.3 + slope step + 0.02 seed; return its directory."""
    steps = {step: metrics(step, slope, seed, weight) for step in range(last + 1)}
    return write_steps(directory / "metrics-1.jsonl", steps).parent


def write_record(run: Path, **record) -> None:
    (run / "run.json").write_text(json.dumps(record))


def write_comparison(root: Path, slopes: dict[str, float], seeds: int = 3) -> Path:
    """Write ``runs/ARM/seed-K`` with ``run.json``, as the runner of studies does; return the directory."""
    for arm, slope in slopes.items():
        for seed in range(seeds):
            run = write_run(root / "runs" / arm / f"seed-{seed}", slope, seed, weight=1.0 if arm == "grpo" else 1.3)
            settings = {"steps": 6, "algorithm": arm}
            write_record(run, arm=arm, seed=seed, finished=True, commit="abc1234567890", uncommitted_changes=False,
                         machine="Linux x86_64", versions={"torch": "2.13.0"}, settings=settings)  # fmt: skip
    return root


def write_generations(directory: Path, by_step: dict[int, list[dict]]) -> Path:
    """Write validation dumps as veRL does: a file ``STEP.jsonl`` with a row for each response."""
    directory.mkdir(parents=True, exist_ok=True)
    for step, rows in by_step.items():
        text = "".join(json.dumps({"step": step, **row}, ensure_ascii=False) + "\n" for row in rows)
        (directory / f"{step}.jsonl").write_text(text, encoding="utf-8", errors="surrogatepass")
    return directory


def generation(prompt: str, output: str, score: float | None, **more) -> dict:
    return {"input": prompt, "output": output, "gts": f"answer of {prompt}", "score": score, **more}
