"""The hub, by directories that have the layout of its repositories, and without a network."""

import pytest

from tests.data.builder_files import environment_for, manifest_of, run_script
from tests.tasks.math.deepscaler_files import RAW, build, write
from verl_trgrpo.tasks.math.sources import SETS, HubData, file_of, hub_data

CARD = """---
configs:
- config_name: {configuration}
  data_files:
  - split: {split}
    path: {path}
---
"""

# As on the hub: columns, types, splits, configurations.
COPIES = {
    "deepscaler": ("deepscaler.json", RAW["deepscaler"]),
    "aime2024": (
        "data/train-00000-of-00001.parquet",
        [
            {
                "id": 60,
                **{k: RAW["aime"][0][k] for k in ("problem", "answer")},
                "solution": "",
                "url": "",
                "year": "2024",
            }
        ],
    ),
    "amc2023": ("data/train-00000-of-00001.parquet", [{"id": 0, **row} for row in RAW["amc"]]),
    "math500": (
        "test.jsonl",
        [{"problem": "Halve 1.", "solution": "", "answer": "0.5", "subject": "Algebra", "level": 2, "unique_id": "x"}],
    ),
    "minerva": ("test.jsonl", [{"question": "What is 48 divided by 5?", "answer": "9.6"}]),
    "olympiad_bench": (
        "OlympiadBench/OE_TO_maths_en_COMP.parquet",
        [{"id": 1, "question": "Square $n$.", "final_answer": ["$n^{2}$"], "subfield": "Algebra", "image_1": None}],
    ),
}


def copy_of_hub(directory, name):
    path, rows = COPIES[name]
    write(directory / name / path, rows)
    hub = hub_data([])[name]
    card = CARD.format(configuration=hub.configuration or "default", split=hub.split, path=path)
    (directory / name / "README.md").write_text(card)
    return f"{name}={directory / name}"


def test_the_sets_from_copies_of_their_repositories(tmp_path, capsys, datasets_cache):
    copies, out = tmp_path / "copies", tmp_path / "out"
    words = ["--source", "hf", "--hf-dataset", *(copy_of_hub(copies, name) for name in SETS)]
    files = build(out, *words)
    found = {name: files[file_of(name)] for name in SETS}
    golds = {name: [row["reward_model"]["ground_truth"] for row in rows] for name, rows in found.items()}
    assert len(golds.pop("deepscaler")) == len(RAW["deepscaler"])
    assert golds == {
        "aime2024": [["025"]],
        "amc2023": [["142"], ["-1"]],
        "math500": [["0.5"]],
        "minerva": [["9.6"]],
        "olympiad_bench": [["$n^{2}$"]],
    }
    info = found["math500"][0]["extra_info"]
    assert (info["level"], info["subject"]) == ("2", "Algebra")
    origin = found["olympiad_bench"][0]["extra_info"]["origin"]
    assert origin == "olympiad_bench/OE_TO_maths_en_COMP/train#1"
    manifest = manifest_of(out)
    assert str(tmp_path) not in str(manifest | {"command": ""})
    assert f"minerva={copies / 'minerva'}" in manifest["command"]
    assert "datasets" in manifest["library_versions"]
    # A changed copy is noticed, but hidden files are not data.
    write(copies / "minerva" / ".cache" / "state.json", [])
    capsys.readouterr()
    build(out, *words)
    assert "already has" in capsys.readouterr().out
    write(copies / "minerva" / "test.jsonl", [{"question": "What is 1?", "answer": "1"}])
    assert build(out, *words)["minerva.parquet"][0]["reward_model"]["ground_truth"] == ["1"]
    assert "already has" not in capsys.readouterr().out


def test_the_hub_without_a_network(tmp_path):
    words = ["--out", tmp_path / "out", "--sets", "amc2023", "--hf-dataset", "amc2023=some/copy@v7"]
    done = run_script("deepscaler", environment_for(tmp_path), *words)
    assert done.returncode == 2
    assert done.stderr.startswith("deepscaler.py: error: could not load some/copy/train at revision 'v7'")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_each_set_has_a_pinned_commit_and_may_have_another_place():
    assert all(len(hub.revision) == 40 for hub in hub_data([]).values())
    places = hub_data(
        ["minerva=a/b", "amc2023=a/b@v1:test", "aime2024=a/b:x/y", "math500=@dev", "olympiad_bench=a/b@refs/pr/1:x/y"]
    )
    assert places["minerva"] == HubData("a/b", "main", "test")
    assert places["amc2023"] == HubData("a/b", "v1", "test")
    assert places["aime2024"] == HubData("a/b", "main", "y", "x")
    assert places["math500"] == HubData("HuggingFaceH4/MATH-500", "dev", "test")
    assert places["olympiad_bench"] == HubData("a/b", "refs/pr/1", "y", "x")


@pytest.mark.parametrize("overrides", [["a/b"], ["minerva="], ["aime=a/b"], ["minerva=a/b", "minerva=c"]])
def test_what_names_no_place_is_refused(overrides):
    with pytest.raises(ValueError, match="hf_dataset is"):
        hub_data(overrides)
