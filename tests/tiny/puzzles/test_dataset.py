"""The quickstart's puzzles: solvable, disjoint, unseen in the warm start, and in the form that veRL and the reward read."""

import shlex
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from verl_trgrpo.data.parquet import read_manifest
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.knights_and_knaves.prompts import format_solution
from verl_trgrpo.tasks.knights_and_knaves.puzzles import canonical_key, generate_puzzles
from verl_trgrpo.tiny.puzzles import dataset
from verl_trgrpo.tiny.puzzles.demonstrations import WarmStartPuzzles


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    assert dataset.build_dataset(directory) is True
    return directory


def rows(directory, name):
    return pq.read_table(directory / name).to_pylist()


def test_counts_and_form(built):
    for name, counts in zip(dataset.FILES, (dataset.TRAIN, dataset.TEST), strict=True):
        found = rows(built, name)
        assert len(found) == sum(counts.values())
        assert {row["data_source"] for row in found} == {f"kk_{n}ppl" for n in counts}
        assert [row["extra_info"]["index"] for row in found] == list(range(len(found)))
        for row in found[:20]:
            answer = f"<think>x</think><answer>{row['reward_model']['ground_truth']}</answer>"
            assert compute_score(row["data_source"], answer, row["reward_model"]["ground_truth"])["acc"] == 1.0


def test_prompts_do_not_repeat_across_files(built):
    prompts = [{row["prompt"][0]["content"] for row in rows(built, name)} for name in dataset.FILES]
    assert not prompts[0] & prompts[1]


def test_the_puzzles_are_those_of_one_distinct_stream_without_warm_start_puzzles(built):
    """One stream of distinct puzzles cut in two has disjoint parts, up to renaming and reordering people."""
    (n_people,) = dataset.TRAIN
    total = dataset.TRAIN[n_people] + dataset.TEST[n_people]
    puzzles = list(generate_puzzles(n_people, total, 0, exclude=WarmStartPuzzles()))
    keys = [canonical_key(puzzle.statements) for puzzle in puzzles]
    assert len(set(keys)) == total
    assert not [key for key in keys if key in WarmStartPuzzles()]
    solutions = sorted(format_solution(puzzle.names, puzzle.solution) for puzzle in puzzles)
    found = [row["reward_model"]["ground_truth"] for name in dataset.FILES for row in rows(built, name)]
    assert sorted(found) == solutions


def test_a_second_build_reuses_and_another_seed_replaces(tmp_path):
    dataset.build_dataset(tmp_path)
    before = (tmp_path / "test.parquet").read_bytes()
    assert dataset.build_dataset(tmp_path) is False
    (tmp_path / "test.parquet").write_bytes(b"damaged")
    assert dataset.build_dataset(tmp_path) is True
    assert (tmp_path / "test.parquet").read_bytes() == before
    assert dataset.build_dataset(tmp_path, seed=1) is True
    assert (tmp_path / "test.parquet").read_bytes() != before


def test_the_recorded_command_makes_the_same_bytes(built, tmp_path):
    words = shlex.split(read_manifest(built)["command"])
    assert words[0] == "python"
    subprocess.run([sys.executable, *words[1:]], cwd=tmp_path, check=True, timeout=600)
    for name in (*dataset.FILES, "manifest.json"):
        assert (tmp_path / built.name / name).read_bytes() == (built / name).read_bytes()
