"""The pages of results follow from the records: made again they are the same, and another figure changes them."""

import json
import shutil
import struct
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from studies.gradients.results import SHARPNESS
from tests.scripts import ROOT, load_scripts
from verl_trgrpo.runs.run_directory import write_record

DOCS = ROOT / "docs"
MADE_AT = {"commit": "0123456789", "versions": {"torch": "2.0"}, "machine": "here"}


@pytest.fixture(scope="module")
def results():
    [module] = load_scripts(DOCS, "make_results")
    return module


@pytest.fixture
def page(results, tmp_path, monkeypatch):
    """A copy of the page and of its files."""
    shutil.copytree(DOCS / "results", tmp_path / "results")
    shutil.copy(DOCS / "results.md", tmp_path)
    shutil.copytree(ROOT / "studies", tmp_path / "studies")
    monkeypatch.setattr(results, "DOCS", tmp_path)
    monkeypatch.setattr(results, "STUDIES", tmp_path / "studies")
    return tmp_path / "results.md"


def picture_sizes(directory):
    """Return width and height of each picture, which a PNG file has in its header."""
    return {path.name: struct.unpack(">II", path.read_bytes()[16:24]) for path in directory.glob("*.png")}


def pages(directory):
    """The page of results and those of the studies."""
    return {path.name: path.read_text() for path in [directory / "results.md", *(directory / "results").glob("*.md")]}


def test_the_pages_made_again_are_the_same(results, page):
    for made in (*page.parent.glob("results/*.png"), *page.parent.glob("results/*.md")):
        made.unlink()
    for name in results.studies():
        results.make(name, page)
    assert pages(page.parent) == pages(DOCS)
    # Releases of matplotlib cut a picture's margin one pixel earlier or later.
    sizes, expected = picture_sizes(page.parent / "results"), picture_sizes(DOCS / "results")
    assert sizes.keys() == expected.keys()
    assert all(sizes[name] == pytest.approx(expected[name], abs=1) for name in expected)


def test_another_figure_in_a_file_changes_the_pages(results, page):
    path = page.parent / "studies" / "comparisons" / "records" / "kk_tiny.json"
    content = json.loads(path.read_text())
    content["runs"]["tr_grpo"]["0"]["final_accuracy"] += 0.08
    path.write_text(json.dumps(content))
    results.make("kk_tiny", page)
    before, after = pages(DOCS), pages(page.parent)
    changed = {name: {*after[name].splitlines()} - {*before[name].splitlines()} for name in before}
    assert {name: len(lines) for name, lines in changed.items() if lines} == {"results.md": 1, "tiny_models.md": 2}
    assert all(line.startswith("| tr_grpo") for line in changed["tiny_models.md"])


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


def test_what_was_found_of_sharpness_is_taken_over_and_compared_by_seed(results, page, tmp_path):
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
    page.write_text("<!-- new_sharpness: begin --><!-- new_sharpness: end -->")
    results.take_over("new_sharpness", places)
    results.make("new_sharpness", page)
    lines = page.read_text().split("sharpness: begin")[1].splitlines()[6:12]
    rows = {tuple(line.split()[1:4:2]): line.split() for line in lines}
    assert "Commit 0123456, torch 2.0, here." in page.read_text()
    assert rows["1e-05", "start"][7] == "1.000" and rows["1e-05", "start"][-2] == "-"
    assert rows["1e-05", "grpo"][7] == "2.500"
    assert rows["1e-05", "tr_grpo"][-2] == "+0.500"
    assert rows["0.001", "tr_grpo"][-2] == "-0.500"


def test_a_study_with_fewer_seeds_of_the_primary_comparison_than_planned_says_so(results):
    study = results.read_study(results.STUDIES / "comparisons" / "small_lm_categories.yaml")
    planned = len(study.seeds)
    assert f"{planned - 3} of {planned}" in results.so_far(study, Counter(grpo=planned, tr_grpo=planned - 3))
    assert not results.so_far(study, Counter(grpo=planned, tr_grpo=planned, tr_grpo_token_mean=2))


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
    found = results.chains_results.outcomes(lines, {"baseline": "grpo", "primary": "tr_grpo", "margin": 0.01})
    verdicts = {key[2]: one.verdict for key, one in found.items() if key[-1] == "tr_grpo"}
    assert verdicts == {0: "gain", 2: "cost", 5: "neutral", 10: "open"}
    gain = found[chain_line("tr_grpo", [])[0]]
    assert gain.relative == pytest.approx(0.02 / 0.2, rel=1e-3) and gain.corrected >= 2 * gain.p_value
    power = found[chain_line("power", [])[0]]
    assert power.corrected == power.p_value, "alone among the other tests"


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
    assert "0.600" in effects.direction_table(runs)


def test_efficiencies_stand_beside_the_outcomes_of_their_studies(results):
    figure = {"mean": 0.9, "low": 0.8, "high": 1.0}
    shaping = {"efficiency": figure | {"mean": 0.95}, "adam_efficiency": figure, "cosine": figure, "angle": 7.0}
    measured = {
        "small_lm": {"mini_batches": 8, "rare_tokens": 0.1, "rare_share": 0.6, "shapings": {"sigmoid": shaping}}
    }
    found = {name: results.study_outcome(name) for name in ("small_lm", "small_lm_sgd")}
    table = results.gradients_results.efficiency_table(measured, found.get)
    rows = {row.split("|")[2].strip(): [cell.strip() for cell in row.split("|")[3:]] for row in table.splitlines()[2:]}
    assert rows.keys() == {"small_lm", "small_lm_sgd"}
    assert rows["small_lm"][0] == "tr_grpo" and rows["small_lm"][2].startswith("-0.030") and rows["small_lm"][3] == "6"
    assert rows["small_lm"][1].startswith("0.900") and rows["small_lm_sgd"][1].startswith("0.950")
