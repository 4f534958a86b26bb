"""A run that went back to an earlier checkpoint, in front of everything that reads a run."""

import io
import json

import pytest
from matplotlib.figure import Figure

from tests.compare.files import generation, write_generations, write_steps
from tests.launch.launching import composed, save_checkpoint
from verl_trgrpo.cli.main import main
from verl_trgrpo.compare.arms import read_runs
from verl_trgrpo.compare.finished import CompareOptions, compare_finished
from verl_trgrpo.compare.page import ReportOptions, write_report
from verl_trgrpo.compare.plots import _draw_abandoned, curves, plot_run
from verl_trgrpo.evaluation.checkpoint import model_card
from verl_trgrpo.launch.train import TrainingFailedError, launch
from verl_trgrpo.runs.metrics import MEAN_REWARD, read_run

VAL, GRAD, KL = "val-core/kk_3ppl/acc/mean@1", "actor/grad_norm", "actor/kl_loss"


def steps_from(first, last, collapses=1000):
    """A sound run, or one whose reward, validation and gradient are lost at a step."""
    rows = {}
    for step in range(first, last + 1):
        lost = step >= collapses
        noise = (step * 7 % 5 - 2) / 100
        rows[step] = {MEAN_REWARD: 0.05 if lost else 0.5 + noise, GRAD: 40.0 if lost else 0.3 + noise}
        if step % 10 == 0:
            rows[step][VAL] = 0.05 if lost else 0.55
    return rows


@pytest.fixture
def went_back(tmp_path):
    """Collapses at step 80, and goes on from the checkpoint of step 70 to step 89, which is not validated."""
    run = tmp_path / "tr_grpo-seed0"
    write_steps(run / "metrics-1.jsonl", steps_from(1, 120, collapses=80))
    write_steps(run / "metrics-2.jsonl", steps_from(71, 89))
    write_steps(tmp_path / "grpo-seed0" / "metrics-1.jsonl", steps_from(1, 120))
    return run


def test_health_judges_the_line_and_names_what_was_left(went_back, capsys):
    assert main(["health", str(went_back)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("left    steps 71 to 120 of attempt 1") and told[-1].startswith(
        "89 steps, the last is 89: no signals"
    )


def test_compare_and_report_count_nothing_of_an_abandoned_branch(went_back, tmp_path):
    found = compare_finished(CompareOptions(runs=(str(went_back), str(tmp_path / "grpo-seed0"))))
    assert found.upto == 89
    entry = found.comparison["tr_grpo"]["final_accuracy"]
    assert entry.estimate.mean == pytest.approx(0.55) and entry.difference.estimate.mean == pytest.approx(0.0)
    assert any("tr_grpo seed 0 left steps 71 to 120 of attempt 1" in note for note in found.notes)
    assert not any("Sick" in note for note in found.notes)


def test_responses_of_an_abandoned_branch_are_not_shown(went_back, tmp_path):
    write_generations(
        went_back / "validation", {step: [generation("p", f"of {step}", 1.0)] for step in (10, 80, 90, 120)}
    )
    write_report(ReportOptions(runs=(str(went_back),), out=tmp_path / "r.html"))
    page = (tmp_path / "r.html").read_text()
    assert "of 10" in page and "of 80" in page and "of 120" not in page and "of 90" not in page


def test_the_branch_is_drawn_beside_the_curve(went_back, tmp_path):
    [curve] = curves({"tr_grpo": read_runs([str(went_back)])}, None, upto=89)
    assert curve.mean.index.max() == 80 and curve.abandoned == [
        [(80.0, 0.05), (90.0, 0.05), (100.0, 0.05), (110.0, 0.05), (120.0, 0.05)]
    ]
    steps, abandoned = read_run(went_back)
    pictures = [
        plot_run(steps, tmp_path / f"{len(left)}.png", "t", abandoned=left).read_bytes() for left in ([], abandoned)
    ]
    assert pictures[0] != pictures[1]


def test_an_explosion_that_was_left_does_not_flatten_the_curves():
    axis = Figure().subplots()
    axis.plot([1, 2, 3], [0.3, 0.4, 0.3])
    _draw_abandoned(axis, [])
    height = axis.get_ylim()
    _draw_abandoned(axis, [[(2.0, 0.3), (3.0, 40.0)], [(3.0, 0.35)]], "abandoned steps")
    assert axis.get_ylim()[1] - axis.get_ylim()[0] == pytest.approx(3 * (height[1] - height[0]))
    assert axis.get_legend_handles_labels()[1] == ["abandoned steps"]


@pytest.mark.parametrize(("step", "accuracy"), [(60, "0.550"), (80, "0.550"), (89, "0.550"), (120, "0.050")])
def test_a_card_is_about_its_own_checkpoint(went_back, step, accuracy):
    [line] = [line for line in model_card(went_back / f"global_step_{step}").splitlines() if "accuracy" in line]
    assert accuracy in line and f"step {min(step, 80) if step < 90 else step}" in line


def test_the_launcher_sees_the_attempts_before_its_own(tmp_path, fake_driver):
    """A resume that loads the base weights: reward and KL fall at once, which the attempt alone cannot show."""
    run = tmp_path / "run"
    rows = {step: {MEAN_REWARD: 0.3 + step / 400 + (step * 7 % 5 - 2) / 200, KL: 1e-3 * step} for step in range(1, 121)}
    lost = {step: {MEAN_REWARD: 0.3 + (step * 7 % 5 - 2) / 200, KL: 1e-4} for step in range(101, 111)}
    save_checkpoint(run, 100)
    write_steps(run / "metrics-1.jsonl", rows)
    lines = [json.dumps({"step": step, "data": data}) for step, data in lost.items()]
    (tmp_path / "lines").write_text("\n".join([*lines, ""]))
    fake_driver(f"cat {tmp_path}/lines > {run}/metrics-2.jsonl; exit 1")
    stream = io.StringIO()
    with pytest.raises(TrainingFailedError):
        launch(composed(run), 200, stream)
    assert (
        "warning: reward has fallen since step 101" in stream.getvalue()
        and "were base weights loaded?" in stream.getvalue()
    )
    record = json.loads((run / "run.json").read_text())
    assert record["last_step"] == 110 and record["signals"][0]["first"] == 101
