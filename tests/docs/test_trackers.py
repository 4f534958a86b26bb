"""Metrics reach every tracker of veRL under one name, and the dashboard shows this project's."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

from tests.fresh import run_fresh
from verl_trgrpo.core import ClipRange, TokenWeighting, compute_policy_loss, make_shaping
from verl_trgrpo.core.metrics import group_metrics

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/report.md").read_text()
DASHBOARD = json.loads((ROOT / "recipes/monitoring/rl_insight_dashboard.json").read_text())
# Variables that keep a tracker on this machine, all relative to the directory DIR.
OFFLINE = {
    "tensorboard": {"TENSORBOARD_DIR": "DIR/tensorboard"},
    "wandb": {"WANDB_MODE": "offline", "WANDB_DIR": "DIR", "WANDB_SILENT": "true"},
    "swanlab": {"SWANLAB_MODE": "offline", "SWANLAB_LOG_DIR": "DIR/swanlab"},
    "trackio": {"TRACKIO_DIR": "DIR/trackio"},
    "mlflow": {"MLFLOW_TRACKING_URI": "sqlite:///DIR/mlflow.db"},
    "file": {"VERL_FILE_LOGGER_ROOT": "DIR"},
}
PROGRAM = """
import os
os.chdir({directory!r})
from verl.utils.tracking import Tracking
tracking = Tracking("project", "run", [{tracker!r}], config={{"trainer": {{}}}})
for step in (1, 2):
    tracking.log(dict.fromkeys({names!r}, 0.5 * step), step)
tracking.finish()
"""


def own_metrics():
    """The metrics that this project adds to a step of veRL."""
    batch = torch.rand(2, 3).log()
    loss = compute_policy_loss(
        batch, old_log_prob=batch, advantages=torch.ones(2, 3), response_mask=torch.ones(2, 3),
        weighting=TokenWeighting(make_shaping("sigmoid")), clip=ClipRange(low=0.2, high=0.2),
    )  # fmt: skip
    info = dict.fromkeys(("format_ok", "gold_unparseable", "timed_out", "cut_off", "restated"), 0)
    weights = {f"actor/{name}" for name in loss.metrics if name.startswith("tr_")}
    return sorted({*weights, *group_metrics(["a", "a"], [0.0, 1.0], [info, info])})


def gauge(name):
    """The name of a metric in Prometheus, as veRL's logger and RL-Insight write it."""
    return "rl_insight_monitor_" + name.replace("/", "_")


@pytest.mark.parametrize("tracker", OFFLINE)
def test_a_tracker_has_every_metric_under_its_name(tracker, tmp_path):
    if tracker != "file" and importlib.util.find_spec(tracker) is None:
        pytest.skip(f"{tracker} is not installed")
    names = [*own_metrics(), "val-core/kk_3ppl/acc/mean@1", "timing_s/step"]
    variables = {name: value.replace("DIR", str(tmp_path)) for name, value in OFFLINE[tracker].items()}
    program = PROGRAM.format(names=names, tracker=tracker, directory=str(tmp_path))
    run_fresh(program, {**variables, "HOME": str(tmp_path)})
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    # MLflow refuses the sign; docs/report.md says what veRL writes in its place.
    wanted = [name.replace("@", "_at_") if tracker == "mlflow" else name for name in names]
    assert [name for name in wanted if name.encode() not in written] == []


def test_the_page_names_each_tracker_that_is_tried():
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Trackers")[2], re.MULTILINE)
    assert rows == [*OFFLINE, "rl_insight"]


def test_the_dashboard_shows_every_own_metric_and_none_that_does_not_exist():
    records = [json.loads(line) for line in (ROOT / "docs/measurements/gpu_training_h200.jsonl").open()]
    known = {gauge(name) for name in (*own_metrics(), *(name for each in records for name in each["data"]))}
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    shown = {query.partition("{")[0] for query in queries}
    assert {gauge(name) for name in own_metrics()} <= shown <= known
    assert all(query.endswith('{project=~"$project", experiment_name=~"$experiment_name"}') for query in queries)


def test_panels_do_not_cover_each_other():
    panels, used = DASHBOARD["panels"], set()
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & used and max(x for x, _ in cells) < 24
        used |= cells
