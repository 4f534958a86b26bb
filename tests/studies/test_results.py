"""The pages of results follow from the records: made again they are the same, and another figure changes them."""

import json
import lzma
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from studies.chains.reading import Records
from studies.gradients.results import SHARPNESS
from tests.scripts import ROOT, load_scripts
from verl_trgrpo.runs.records import write_record

DOCS = ROOT / "docs"
MADE_AT = {"commit": "0123456789", "versions": {"torch": "2.0"}, "machine": "here"}
# Makes the pages while nothing but what make results promises to need can be imported, of what is installed.
ALONE = """
import importlib.abc, runpy, sys
class Others(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in {"verl", "vllm", "ray", "transformers", "hydra", "omegaconf", "pandas", "pyarrow", "tqdm", "tyro", "jinja2"}:
            raise ImportError(name)
sys.meta_path.insert(0, Others())
sys.argv = ["make_results.py"]
runpy.run_path("docs/make_results.py", run_name="__main__")
"""
# Another process has another seed of hashes.
PICTURES = 'import runpy; runpy.run_path("docs/make_results.py")["make_pictures"]()'


@pytest.fixture(scope="module")
def results():
    [module] = load_scripts(DOCS, "make_results")
    return module


@pytest.fixture
def checkout(results, tmp_path, monkeypatch):
    """A copy of the pages and of the records."""
    shutil.copytree(DOCS / "results", tmp_path / "docs" / "results")
    for name in ("results.md", "make_results.py"):
        shutil.copy(DOCS / name, tmp_path / "docs")
    for name in ("studies", "verl_trgrpo"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(results, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(results, "STUDIES", tmp_path / "studies")
    return tmp_path


def pages(docs):
    """The page of results and those of the studies, with their pictures."""
    return {path.name: path.read_text() for path in [docs / "results.md", *(docs / "results").iterdir()]}


def test_the_pages_made_again_without_verl_are_the_same_and_pictures_too_if_made_twice(checkout):
    found = []
    for code in (ALONE, PICTURES):
        for picture in checkout.glob("docs/results/*.svg"):
            picture.unlink()
        subprocess.run([sys.executable, "-c", code], cwd=checkout, check=True)
        found.append(pages(checkout / "docs"))
    assert found[0] == found[1]
    assert found[0].keys() == pages(DOCS).keys()
    # Releases of matplotlib write pictures otherwise.
    assert all(text == found[0][name] for name, text in pages(DOCS).items() if name.endswith(".md"))


def test_another_figure_in_a_file_changes_the_page(results, checkout):
    path = checkout / "studies" / "comparisons" / "records" / "kk_tiny.json"
    content = json.loads(path.read_text())
    content["runs"]["tr_grpo"]["0"]["final_accuracy"] += 0.08
    path.write_text(json.dumps(content))
    page = checkout / "docs" / "results" / "tiny_models.md"
    results.fill(page, {"tiny_models": results.tiny_models})
    before, after = ({*one.read_text().splitlines()} for one in (DOCS / "results" / "tiny_models.md", page))
    assert [line.split()[1] for line in after - before] == ["kk_tiny"]


def test_a_place_without_records_is_refused(results, tmp_path):
    (tmp_path / "page.md").write_text("<!-- nothing: begin --><!-- nothing: end -->")
    with pytest.raises(ValueError, match="nothing is recorded for nothing"):
        results.fill(tmp_path / "page.md", {})


def test_records_of_finished_runs_are_packed_and_the_same_ones_give_the_same_bytes(results, tmp_path):
    for arm, finished in (("grpo", True), ("tr_grpo", False)):
        run = tmp_path / "runs" / arm / "seed-0"
        (run / "validation").mkdir(parents=True)
        (run / "global_step_4").mkdir()
        for name in ("metrics-1.jsonl", "validation/4.jsonl", "global_step_4/model.safetensors", "run.log"):
            (run / name).write_text("{}\n")
        write_record(run, {"arm": arm, "seed": 0, "finished": finished, "command": ["--out", str(run)]})
    archives = [tmp_path / "first.tar.xz", tmp_path / "second.tar.xz"]
    for archive in archives:
        assert results.pack(tmp_path, archive) == 1
        (tmp_path / "runs" / "grpo" / "seed-0" / "metrics-1.jsonl").touch()
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as packed:
        names = [Path(name).name for name in packed.getnames()]
        record = json.load(packed.extractfile("runs/grpo/seed-0/run.json"))
    assert record == {"arm": "grpo", "seed": 0, "finished": True}, "no path of this machine"
    assert names == ["run.json", "metrics-1.jsonl", "4.jsonl"]


def test_a_directory_without_finished_runs_does_not_replace_an_archive(results, tmp_path):
    archive = tmp_path / "study.tar.xz"
    archive.write_bytes(b"records")
    with pytest.raises(ValueError, match="no finished runs"):
        results.pack(tmp_path / "stduy", archive)
    assert archive.read_bytes() == b"records"


def test_what_was_found_of_sharpness_is_taken_over_and_compared_by_seed(results, checkout, tmp_path):
    """The start, which has no seed in common with the runs, stands without a difference."""
    places = {}
    for checkpoint, norm in {
        "start/shipped": 1.0,
        "grpo/seed-0": 2.0,
        "grpo/seed-1": 3.0,
        "tr_grpo/seed-1": 3.5,
    }.items():
        places[checkpoint] = tmp_path / checkpoint
        places[checkpoint].mkdir(parents=True)
        radii = [{name: {"mean": mean, "low": 0.0, "high": 9.0} for name in SHARPNESS} for mean in (norm, -norm)]
        measured = {"options": {"radius": [1e-05, 0.001]}, "models": {"any": radii}} | MADE_AT
        (places[checkpoint] / "sharpness.json").write_text(json.dumps(measured))
    results.take_over("new_sharpness", places)
    text = results.measurement("new_sharpness")
    lines = text.splitlines()[4:]
    rows = {tuple(line.split()[1:4:2]): line.split() for line in lines}
    assert "Commit 0123456, torch 2.0, here." in text
    assert rows["1e-05", "start"][7] == "1.000" and rows["1e-05", "start"][-2] == "-"
    assert rows["1e-05", "grpo"][7] == "2.500"
    assert rows["1e-05", "tr_grpo"][-2] == "+0.500"
    assert rows["0.001", "tr_grpo"][-2] == "-0.500"


def chain_line(arm, values, fillers=0):
    key = {"optimizer": "adam", "passes": 1, "fillers": fillers, "right": 0.5, "arm": arm}
    return tuple(key.values()), key | {"accuracy": values, "start_accuracy": 0.1}


def test_chains_gain_cost_are_neutral_or_open_by_the_stated_rule(results):
    """The spread of the differences decides between neutral and open; tests of the primary arm are corrected among themselves."""
    noise = [((7 * i) % 20 - 9.5) / 1000 for i in range(40)]
    base = [0.3 + 3 * one for one in noise]
    shifts = {0: (0.02, 1), 2: (-0.02, 1), 5: (0.001, 1), 10: (0.001, 8)}
    lines = {}
    for fillers, (shift, spread) in shifts.items():
        lines |= [chain_line("grpo", base, fillers)]
        lines |= [chain_line("tr_grpo", [b + shift + spread * e for b, e in zip(base, noise, strict=True)], fillers)]
    lines |= [chain_line("power", [b - 0.001 + 8 * e for b, e in zip(base, noise, strict=True)])]
    found = results.chains_map.outcomes(lines, {"baseline": "grpo", "primary": "tr_grpo", "margin": 0.01})
    verdicts = {key[2]: one.verdict for key, one in found.items() if key[-1] == "tr_grpo"}
    assert verdicts == {0: "gain", 2: "cost", 5: "neutral", 10: "open"}
    gain = found[chain_line("tr_grpo", [])[0]]
    assert gain.relative == pytest.approx(0.02 / 0.2, rel=1e-3) and gain.corrected >= 2 * gain.effect.p
    power = found[chain_line("power", [])[0]]
    assert power.corrected == power.effect.p, "alone among the other tests"


STUDY = {"baseline": "grpo", "primary": "tr_grpo"}


def convergence_lines(shift, held_out=0.9):
    """Two arms on one chain, 40 seeds: tuned with the second of two rates best, counted at it with an end `shift` apart."""
    noise = [((7 * i) % 20 - 9.5) / 2000 for i in range(40)]
    lines = []
    for arm, more in (("grpo", 0.0), ("tr_grpo", shift)):
        key = {"fillers": 0, "right": 0.75, "arm": arm}
        lines.append(key | {"part": "tuning", "rates": [0.01, 0.02], "held_out": [[0.5, 0.6], [0.8, 0.9]]})
        ends = [round(1e4 * (held_out + (more + one if arm == "tr_grpo" else 0))) for one in noise]
        passed = {
            "step": [10 + (arm == "grpo")] * 39 + [-1],
            "train": [8000] * 40,
            "held_out": [round(7000 + 1e4 * more)] * 40,
        }
        passed["held_out"][0] += 10 * (arm == "grpo")
        passed |= {"noise_loss": [0.002 + e for e in noise], "curvature": [2 + (arm == "grpo") * e for e in noise]}
        counted = key | {"part": "counting", "rates": [0.02], "held_out": [ends, ends], "train": [ends, ends]}
        lines.append(counted | {"curve": [[0.9, 0.8]] * 3, "passed": {"0.8": passed}})
    return lines


@pytest.mark.parametrize(
    ("shift", "verdict"), [(0.001, "equal"), (0.006, "gain, below the margin"), (0.03, "gain"), (-0.03, "loss")]
)
def test_chains_to_convergence_are_equal_or_differ_by_the_declared_rule(results, shift, verdict):
    study = STUDY | {"margin": 0.01, "steps": [40, 320], "horizons": [40, 320]}
    study |= {"fillers": [0, 10], "right": [0.75], "rates": {0.75: [0.01, 0.02]}, "thresholds": [0.8]}
    records = Records(convergence_lines(shift), study)
    (row,) = results.convergence.horizon_table(records, 320).splitlines()[2:]
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[-3] == verdict and cells[3].startswith(f"{shift:+.3f}")
    (row,) = results.convergence.passing_table(records).splitlines()[2:]
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[3] == "39" and cells[5].startswith("-1.0"), "a seed that did not pass is left out"
    assert cells[7].startswith(f"{-shift:+.3f}")


def test_records_are_read_from_their_archive(tmp_path):
    with lzma.open(tmp_path / "records.xz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in convergence_lines(0.0))
    study = STUDY | {"steps": [40, 320], "horizons": [40, 320], "right": [0.75], "fillers": [0]}
    records = Records.read(tmp_path / "records.xz", study)
    assert records.best((0, 0.75), "grpo", 40) == 0.02 and records.chains("grpo") == [(0, 0.75)]


def effects_record(arm, gains):
    """A run on chains whose update with weights gains `gains` more than that without, 0.01; half of it in the shared state."""
    names = {"tr_grpo": ("tr_grpo", "grpo, {}"), "grpo": ("tr_grpo, {}", "grpo")}[arm]
    accuracy, change = {}, {"tokens": 5}
    for state, part in (("own state", 1.0), ("same state", 0.5)):
        weighted, plain = (name.format(state) for name in names)
        # What the trained arm's update does is one figure: the other arm's differs from it by state.
        base = 0.01 if arm == "grpo" else 0.01 + gains - part * gains
        accuracy |= {weighted: [base + part * gains] * 2, plain: [base] * 2}
        change |= {weighted: base + part * gains, plain: base}
    relations = dict.fromkeys(
        [f"{a} {b}" for a in ("gradient", "same state", "own state") for b in ("cosine", "length")]
    )
    relations = {key: [0.5, 0.7] for key in relations}
    about = {"run": "c", "arm": arm, "seed": 0, "steps": [1, 11], "relations": relations, "accuracy": accuracy}
    return about | {"changes": {"own rare right": change}}


def test_effects_are_with_minus_without_weights_whichever_arm_is_trained(results):
    effects, arms = results.update_effects_results, ("tr_grpo", "grpo")
    runs = {"c": [effects_record("tr_grpo", 0.002), effects_record("grpo", 0.002)]}
    rows = [line.split("|")[1:-1] for line in effects.accuracy_table(runs, arms).splitlines()[2:]]
    assert [row[1].strip() for row in rows] == ["1 to 10", "later"]
    for row in rows:
        assert [cell.split()[0] for cell in row[2:]] == ["+10.0", "+2.000", "+1.000"]
    (changes,) = effects.change_table(runs, arms, "own state", "own").splitlines()[2:]
    assert [cell.strip() for cell in changes.split("|")[2:6]] == ["rare right", "10", "+10.0", "+2.000"]
    assert "0.600" in effects.direction_table(runs, arms)


def test_efficiencies_stand_beside_the_outcomes_of_their_studies(results):
    figure = {"mean": 0.9, "low": 0.8, "high": 1.0}
    shaping = {"efficiency": figure | {"mean": 0.95}, "adam_efficiency": figure, "cosine": figure, "angle": 7.0}
    measured = {
        "small_lm": {"mini_batches": 8, "rare_tokens": 0.1, "rare_share": 0.6, "shapings": {"sigmoid": shaping}}
    }
    found = {name: results.outcome(name) for name in ("small_lm", "small_lm_sgd")}
    table = results.gradients_results.efficiency_table(measured, found.get)
    rows = {row.split("|")[2].strip(): [cell.strip() for cell in row.split("|")[3:]] for row in table.splitlines()[2:]}
    assert rows.keys() == {"small_lm", "small_lm_sgd"}
    assert rows["small_lm"][0] == "tr_grpo" and rows["small_lm"][2].startswith("-0.030") and rows["small_lm"][3] == "6"
    assert rows["small_lm"][1].startswith("0.900") and rows["small_lm_sgd"][1].startswith("0.950")
