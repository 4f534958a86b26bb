"""Every builder with a source: each of its files, columns and rows is used, or named in the manifest and in a warning."""

import ast
import hashlib
import inspect
import json
from pathlib import Path

import pytest

from tests.tasks.built_files import main, manifest_of, rows_of
from tests.tasks.knights_and_knaves.kk_oracle import public_row
from tests.tasks.math.deepscaler_files import RAW
from tests.tasks.search_qa.files import question
from verl_trgrpo.common.options import get_type_hints
from verl_trgrpo.data.sources import NOT_ASKED_FOR
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles
from verl_trgrpo.tasks.registry import known_builders
from verl_trgrpo.tasks.task import imported

# Files of a small source of each builder, and words of its command.
SAMPLES = {
    "kk": (
        {
            "train/3.jsonl": [public_row(puzzle) for puzzle in generate_puzzles(3, 8, 1)],
            "test/3.jsonl": [public_row(puzzle) for puzzle in generate_puzzles(3, 4, 2)],
        },
        ["--people", "3", "--train", "2", "--test", "1"],
    ),
    "deepscaler": ({f"{raw}.jsonl": [{**row, "url": f"at {raw}"} for row in rows] for raw, rows in RAW.items()}, []),
    "search-qa": (
        {f"{name}/train.jsonl": [question(name, "train", n) for n in range(3)] for name in ("nq", "hotpotqa")}
        | {"popqa/test.jsonl": [question("popqa", "test", n) for n in range(3)]},
        ["--test-sets", "popqa"],
    ),
}
WITH_SOURCE = [
    word
    for word, builder in known_builders().items()
    if "source" in get_type_hints(get_type_hints(imported(builder.function))["options"])
]
SPELLINGS = {
    "as it is": str,
    "upper case": str.upper,
    "title": str.title,
    "hyphens": lambda name: name.replace("_", "-"),
    "neither": lambda name: name.replace("_", ""),
}


def write(directory, files):
    for name, rows in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


def build(word, source, out):
    return main(["data", "build", word, "--out", str(out), "--source", str(source), *SAMPLES[word][1]])


def content(out):
    """What a policy is asked and scored by, in each file."""
    return {
        path.name: [(row["prompt"], row["reward_model"]) for row in rows_of(path)] for path in out.glob("*.parquet")
    }


def assert_all_is_told(source, out, log):
    """Each file is an input or left out with a warning, and each row is counted."""
    manifest = manifest_of(out)
    used = {sha for _, sha in manifest["arguments"]["source"].values()}
    rows = 0
    for path in filter(Path.is_file, source.rglob("*")):
        if hashlib.sha256(path.read_bytes()).hexdigest() in used:
            rows += sum(1 for _ in path.open())
            continue
        reason = manifest["left_out"][str(path.relative_to(source))]
        assert reason == NOT_ASKED_FOR or str(path.relative_to(source)) in log
    assert sum(found["read"] for found in manifest["counts"].values()) == rows


def test_every_builder_with_a_source_has_a_sample():
    assert [*SAMPLES] == WITH_SOURCE, "a builder that reads a source needs a sample here"


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("word", WITH_SOURCE)
def test_names_of_files_are_known_in_any_spelling_and_strangers_are_named(tmp_path, caplog, word, spelling):
    files = SAMPLES[word][0]
    assert build(word, write(tmp_path / "a", files), tmp_path / "plain") == 0
    spelled = write(tmp_path / "b", {SPELLINGS[spelling](name): rows for name, rows in files.items()})
    strangers = ["elsewhere/stranger.jsonl", "stranger.csv", "UNKNOWN/more/train.parquet"]
    write(spelled, {name: [{"from": name}] for name in strangers})
    assert build(word, spelled, tmp_path / "out") == 0
    assert content(tmp_path / "out") == content(tmp_path / "plain")
    assert_all_is_told(spelled, tmp_path / "out", caplog.text)
    assert {*strangers} <= manifest_of(tmp_path / "out")["left_out"].keys()


def changed(rows, column, change):
    """Rows with a column dropped, renamed, spelled in another way, without values, or beside another one."""
    if change == "added":
        return [{**row, "stray": f"{number}"} for number, row in enumerate(rows)]
    name = {"renamed": f"my {column}", "spelled": column.upper()}.get(change, column)
    kept = [{key: value for key, value in row.items() if key != column} for row in rows]
    if change == "null in one row":
        return [{**rows[0], column: None}, *rows[1:]]
    return kept if change == "dropped" else [row | {name: old[column]} for row, old in zip(kept, rows, strict=True)]


@pytest.mark.parametrize("change", ["dropped", "renamed", "spelled", "added", "null in one row"])
@pytest.mark.parametrize("word", WITH_SOURCE)
def test_no_column_and_no_row_is_lost_in_silence(tmp_path, caplog, capsys, word, change):
    files = SAMPLES[word][0]
    build(word, write(tmp_path / "a", files), tmp_path / "plain")
    counts = manifest_of(tmp_path / "plain")["counts"]
    needless = {name for found in counts.values() for name in found.get("columns_not_read", ())}
    name = next(iter(files))
    for number, column in enumerate(files[name][0] if change != "added" else ["stray"]):
        source, out = tmp_path / f"in{number}", tmp_path / f"out{number}"
        write(source, {**files, name: changed(files[name], column, change)})
        caplog.clear()
        code, error = build(word, source, out), capsys.readouterr().err
        if code:  # refused with the name of the column
            assert code == 2 and column in error and change in ("dropped", "renamed"), error
            continue
        assert_all_is_told(source, out, caplog.text)
        found = manifest_of(out)["counts"].values()
        unread = {name for each in found for name in each.get("columns_not_read", ())}
        lost = [origin for each in found for origin in each.get("rows_not_used", ())]
        dropped = any(each["dropped"].get("the row has no answer") for each in found)
        if change in ("renamed", "added"):
            new = "stray" if change == "added" else f"my {column}"
            assert new in unread and new in caplog.text
        elif change == "spelled":
            assert content(out) == content(tmp_path / "plain") and (column in needless) == (column.upper() in unread)
        elif content(out) != content(tmp_path / "plain"):
            assert dropped or (lost == [f"{origin_of(word, name)}#1"] and lost[0].replace("#", ", row ") in caplog.text)


def origin_of(word, name):
    return name.removesuffix(".jsonl") if word == "search-qa" else Path(name).name


@pytest.mark.parametrize("word", WITH_SOURCE)
def test_builders_reach_files_by_the_one_door(word):
    """A directory that a builder lists, or a file that it opens itself, would have no warning for what is left out."""
    module = inspect.getmodule(imported(known_builders()[word].function))
    calls = {node.func for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call)}
    names = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
    doors = {"iterdir", "glob", "rglob", "walk", "scandir", "listdir", "open", "read_text", "read_bytes", "read_rows"}
    assert not names & doors and {"find_source_files", "parse_records"} <= names
