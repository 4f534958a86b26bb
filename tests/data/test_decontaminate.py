"""Contaminated train rows are found, instructions are not; the clean file is the rest, and nothing is destroyed."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import checked_files
from tests.data.checked_files import OTHER, RENAMED, STATEMENTS, user
from verl_trgrpo.common.files import file_sha256
from verl_trgrpo.curation.decontaminate import (
    ContaminationOptions,
    contamination_text,
    find_contamination,
    manifest_path,
    words_of,
    write_clean,
)


def texts(count, words=30, seed=0, alphabet="abcdefghij"):
    """Random texts whose words hardly ever meet."""
    rng = random.Random(seed)
    return [" ".join("".join(rng.choices(alphabet, k=8)) for _ in range(words)) for _ in range(count)]


def row(i, content, split="train", **extra):
    return checked_files.row(i, prompt=user(content), extra_info={"index": i, "split": split, **extra})


def write(path, contents, **extra):
    return checked_files.write(path, [row(i, content, **extra) for i, content in enumerate(contents)])


def pairs(found):
    return [(match.train_row, match.test_file, match.test_row, match.reason) for match in found.matches]


@pytest.fixture
def find(tmp_path):
    """Contamination of a train file by test files, each given by its prompts."""

    def find(train, *tests, **options):
        paths = [write(tmp_path / f"test{i}.parquet", contents) for i, contents in enumerate(tests)]
        train_path = write(tmp_path / "train.parquet", train)
        return find_contamination(ContaminationOptions(train_path, tuple(paths), **options))

    return find


def test_equal_prompts_are_found_in_any_test_file(find):
    train, one, other = texts(10), texts(5, seed=1), texts(5, seed=2)
    train[3], train[7], train[8] = one[4].upper(), f"  {other[0]}", one[4]
    found = find(train, one, other)
    assert pairs(found) == [
        (3, "test0.parquet", 4, "equal prompt"),
        (7, "test1.parquet", 0, "equal prompt"),
        (8, "test0.parquet", 4, "equal prompt"),
    ]
    assert found.tests == {"test0.parquet": (5, 1), "test1.parquet": (5, 1)}


def oracle_share(train, test, n):
    """Share of the test words that lie in a run of n words which the train text has, by brute force."""
    train, test = train.lower().split(), test.lower().split()
    train_runs = [train[i : i + n] for i in range(len(train) - n + 1)]
    covered = [
        any(test[start : start + n] in train_runs for start in range(max(0, i - n + 1), min(i, len(test) - n) + 1))
        for i in range(len(test))
    ]
    return sum(covered) / len(test)


@given(st.data())
def test_the_share_is_that_of_the_definition(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("share")
    n = data.draw(st.integers(1, 5))
    words = st.lists(st.sampled_from("abcd"), min_size=n, max_size=15).map(" ".join)
    train, test = data.draw(st.lists(words, min_size=1, max_size=3)), data.draw(words)
    paths = write(directory / "train.parquet", train), (write(directory / "test.parquet", [test]),)
    found = find_contamination(ContaminationOptions(paths[0], paths[1], ngram=n, threshold=0.0001))
    shares = {match.train_row: match.share for match in found.matches}
    for number, text in enumerate(train):
        assert shares.get(number, 0.0) == pytest.approx(oracle_share(text, test, n), abs=1e-4)


def test_a_changed_word_does_not_hide_a_prompt_but_many_do(find):
    test = texts(1, words=60, seed=1)
    words = test[0].split()
    one_changed = " ".join([*words[:30], "changed", *words[31:]])
    every_tenth = " ".join("changed" if i % 10 == 5 else word for i, word in enumerate(words))
    first_half = " ".join(words[:30])
    inside = f"{texts(1, seed=2)[0]} {test[0]} {texts(1, seed=3)[0]}"
    found = find([one_changed, every_tenth, first_half, inside, *texts(10)], test, ngram=13, threshold=0.8)
    assert [(match.train_row, match.share) for match in found.matches] == [(0, round(59 / 60, 4)), (3, 1.0)]
    assert {match.reason for match in found.matches} == {"overlap"}


def test_threshold_and_run_length_are_obeyed(find):
    words = texts(1, words=40, seed=1)[0].split()
    half = " ".join(words[:20])
    assert pairs(find([half, *texts(5)], [" ".join(words)], threshold=0.5)) == [(0, "test0.parquet", 0, "overlap")]
    assert pairs(find([half, *texts(5)], [" ".join(words)], threshold=0.51)) == []
    assert pairs(find([half, *texts(5)], [" ".join(words)], threshold=0.5, ngram=21)) == []


def test_short_prompts_have_to_be_equal_as_a_whole(find):
    test = ["Who wrote the book Emma?"]
    train = [
        "who wrote the book emma",
        "Tell me: who wrote the book Emma? And when was it?",
        "Who wrote the book Emily?",
    ]
    assert pairs(find(train, test)) == [(0, "test0.parquet", 0, "overlap")]


INSTRUCTION = " Let us think step by step and put the final answer of the problem into a box at the very end."


def test_numbers_tell_problems_apart(find):
    test = ["A train leaves at 7 and needs 35 minutes for the way from one town to another one by the sea."]
    other = test[0].replace("35", "45")
    reworded = test[0].replace("A train", "On Monday a train") + " Its length is 120 m."
    assert pairs(find([other, reworded], test)) == [(1, "test0.parquet", 0, "overlap")]


def test_instructions_that_many_rows_share_are_left_out_and_named(find):
    train, test = texts(40, words=5), texts(40, words=5, seed=1)
    train[7] = test[3]
    found = find(*([question + INSTRUCTION for question in questions] for questions in (train, test)))
    assert pairs(found) == [(7, "test0.parquet", 3, "equal prompt")]
    assert found.instructions == (" ".join(words_of(INSTRUCTION)),)
    assert found.instructions[0][:20] in contamination_text(found, None)
    # Words behind an instruction are compared as those in front of it.
    hidden = find([*train[:7], INSTRUCTION + test[3], *train[8:]], [q + INSTRUCTION for q in test])
    assert pairs(hidden) == [(7, "test0.parquet", 3, "overlap")]


def test_a_phrase_of_many_test_rows_costs_no_comparison_with_each(find):
    phrase = texts(1, words=10, seed=5)[0]
    tests = [f"{question} {phrase}" for question in texts(101, words=120, seed=1)]
    others = texts(1000, words=3, seed=2)  # too many rows for the phrase to be an instruction of the file
    found = find([phrase], [*tests, *others], threshold=0.01)
    assert found.matches == found.instructions == ()
    assert len(find([phrase], [*tests[:99], *others], threshold=0.01).matches) == 1


def test_the_question_that_a_builder_recorded_counts_and_not_its_instruction(tmp_path):
    def file(name, questions):
        rows = [row(i, question + INSTRUCTION, question=question) for i, question in enumerate(questions)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
        return tmp_path / name

    train, test = texts(10, words=5), texts(10, words=5, seed=1)
    train[7] = test[3]
    found = find_contamination(ContaminationOptions(file("train", train), (file("test", test),)))
    assert pairs(found) == [(7, "test", 3, "equal prompt")]


def test_puzzles_are_compared_by_their_statements(tmp_path):
    story = texts(1, words=40)[0]
    train = tmp_path / "train.parquet"
    rows = [row(0, "One wording", statements=RENAMED), row(1, story, statements=OTHER), row(2, story, statements=None)]
    pq.write_table(pa.Table.from_pylist(rows), train)
    test = write(tmp_path / "test.parquet", [story + " more"], split="test", statements=STATEMENTS)
    found = find_contamination(ContaminationOptions(train, (test,)))
    assert pairs(found) == [(0, "test.parquet", 0, "equal puzzle"), (2, "test.parquet", 0, "overlap")]


def test_wrong_options_are_refused_together():
    with pytest.raises(ValueError, match=r"(?s)ngram=0.*threshold=7.*against"):
        ContaminationOptions(Path(__file__), (), ngram=0, threshold=7.0)


def clean(options):
    return write_clean(find_contamination(options), options)


@pytest.fixture
def dirty(tmp_path):
    """Options: rows 1 and 4 of 2,500 train rows are in the test file."""
    train, test = texts(2500, words=15), texts(5, words=15, seed=1)
    train[1], train[4] = test[2], test[0]
    paths = write(tmp_path / "train.parquet", train), (write(tmp_path / "test.parquet", test, split="test"),)
    return ContaminationOptions(*paths, out=tmp_path / "clean.parquet")


def test_the_clean_file_has_the_other_rows_as_they_were(tmp_path, dirty):
    found = find_contamination(dirty)
    write_clean(found, dirty)
    manifest = json.loads(manifest_path(dirty.out).read_text())
    before, after = (pq.read_table(path) for path in (dirty.train, dirty.out))
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.to_pylist() == [r for i, r in enumerate(before.to_pylist()) if i not in (1, 4)]
    assert (manifest["train_rows"], manifest["tests"]) == (2500, {"test.parquet": [5, 2]})
    assert manifest["sha256"] == {path.name: file_sha256(path) for path in (dirty.train, *dirty.against, dirty.out)}
    assert (manifest["ngram"], manifest["threshold"]) == (dirty.ngram, dirty.threshold)
    assert [(m["train_row"], m["test_file"], m["test_row"], m["reason"]) for m in manifest["matches"]] == pairs(found)
    assert str(tmp_path) not in manifest_path(dirty.out).read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "clean.manifest.json", "clean.parquet", "test.parquet", "train.parquet",
    ]  # fmt: skip
    assert find_contamination(ContaminationOptions(dirty.out, dirty.against)).matches == ()


def test_a_file_without_extra_info_is_cleaned_too(tmp_path):
    contents = texts(4)
    prompts = [[{"role": "user", "content": content}] for content in contents]
    pq.write_table(pa.table({"prompt": prompts, "more": [1.5, 2.5, 3.5, 4.5]}), tmp_path / "train.parquet")
    test = write(tmp_path / "test.parquet", contents[2:3])
    clean(ContaminationOptions(tmp_path / "train.parquet", (test,), out=tmp_path / "clean.parquet"))
    assert pq.read_table(tmp_path / "clean.parquet")["more"].to_pylist() == [1.5, 2.5, 4.5]


def test_outputs_that_would_destroy_something_are_refused(tmp_path, dirty):
    foreign = write(tmp_path / "foreign.parquet", ["precious"])
    refused = {
        dirty.train: "one of the inputs",
        dirty.against[0]: "one of the inputs",
        foreign: "exists",
        tmp_path / "clean.csv": "end with .parquet",
    }
    for out, reason in refused.items():
        with pytest.raises(ValueError, match=reason):
            replace(dirty, out=out)
    clean(replace(dirty, out=foreign, force=True))
    assert pq.read_table(foreign).num_rows == 2498


def test_a_train_file_that_is_all_test_is_refused(tmp_path):
    train, test = write(tmp_path / "train.parquet", texts(3)), write(tmp_path / "test.parquet", texts(3))
    with pytest.raises(ValueError, match="nothing would be left"):
        clean(ContaminationOptions(train, (test,), out=tmp_path / "clean.parquet"))
    assert not (tmp_path / "clean.parquet").exists()


def test_a_failed_write_leaves_the_old_file(dirty):
    clean(dirty)
    found = find_contamination(dirty)
    before = dirty.out.read_bytes()
    dirty.train.write_bytes(dirty.train.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"cannot write .*clean\.parquet"):
        write_clean(found, dirty)
    assert dirty.out.read_bytes() == before


def test_the_report_names_rows_and_files(dirty):
    found = find_contamination(dirty)
    text = contamination_text(found, None)
    assert "2 of 2500" in text and "test.parquet: 2 of 5" in text
    assert re.search(r"train row 1: equal prompt, test\.parquet row 2", text)
    assert "2498" in contamination_text(found, Path("clean.parquet"))
