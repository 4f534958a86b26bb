"""Contaminated train rows are found, instructions are not."""

import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.contaminated_files import pairs, row, texts, write
from tests.data.puzzle_statements import OTHER, RENAMED, STATEMENTS
from verl_trgrpo.data.decontaminate import ContaminationOptions, find_contamination
from verl_trgrpo.data.prompts import normalize_text, prompt_text, row_keys, words_of
from verl_trgrpo.tasks.knights_and_knaves.logic import puzzle_key


@pytest.fixture
def find(tmp_path):
    """Contamination of a train file by test files, each given by its prompts."""

    def find(train, *tests, **options):
        paths = [write(tmp_path / f"test{i}.parquet", contents) for i, contents in enumerate(tests)]
        train_path = write(tmp_path / "train.parquet", train)
        return find_contamination(ContaminationOptions(train_path, tuple(paths), **options), puzzle_key)

    return find


EQUAL = {
    "case": ("Find x.", "FIND X."),
    "white space": ("Find x.", " Find\n\t x. "),
    "no-break space": ("Find x.", "Find\u00a0x."),
    "full width": ("Find x.", "Ｆｉｎｄ ｘ．"),
    "ligature": ("Find five", "Find ﬁve"),
    "sharp s": ("STRASSE", "straße"),
    "composed": ("café", "cafe\u0301"),
}
DIFFERENT = {"sign": ("x+1", "x-1"), "full stop": ("Find x", "Find x."), "accent": ("cafe", "café")}


@pytest.mark.parametrize("name", [*EQUAL, *DIFFERENT])
def test_what_is_equal_after_normalization(name):
    one, other = (EQUAL | DIFFERENT)[name]
    assert (normalize_text(one) == normalize_text(other)) == (name in EQUAL)


@given(st.text())
def test_normalized_text_is_canonical(text):
    once = normalize_text(text)
    assert normalize_text(once) == once
    assert unicodedata.is_normalized("NFKC", once)
    assert normalize_text(f" {text}\n") == once
    assert "  " not in once and once == once.strip()


def test_words_keep_signs_of_arithmetic_and_drop_other_punctuation():
    assert words_of(r'"\frac{X^2}{y}" + z_1 = 3.5!') == ["frac", "x", "^", "2", "y", "+", "z_1", "=", "3", "5"]


def test_the_text_of_a_prompt_is_that_of_the_conversation():
    system, user, answer = ({"role": role, "content": role.upper()} for role in ("system", "user", "assistant"))
    assert prompt_text([system, user, answer, user]) == "USER\nASSISTANT\nUSER"
    assert prompt_text([system]) == "SYSTEM"
    assert [prompt_text(odd) for odd in (None, "x", [], ["x"], [{"role": "user"}], [{"content": 3}])] == [""] * 6
    assert row_keys({"prompt": None}, puzzle_key) == ()


def test_statements_are_read_from_both_places_and_never_evaluated():
    key = puzzle_key({"extra_info": {"statements": STATEMENTS}})
    assert key is not None
    assert key == puzzle_key({"reward_model": {"ground_truth": {"statements": RENAMED}}})
    assert key != puzzle_key({"extra_info": {"statements": OTHER}})
    for odd in ("exit()", "(('lying', 9),)", "", None, 3, ["x"]):
        assert puzzle_key({"extra_info": {"statements": odd}, "reward_model": None}) is None


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
    found = find_contamination(ContaminationOptions(paths[0], paths[1], ngram=n, threshold=0.0001), puzzle_key)
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
    found = find([one_changed, every_tenth, first_half, inside, *texts(10)], test)
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


def test_the_question_that_a_builder_recorded_counts_and_not_its_instruction(tmp_path):
    def file(name, questions):
        rows = [row(i, question + INSTRUCTION, question=question) for i, question in enumerate(questions)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
        return tmp_path / name

    train, test = texts(10, words=5), texts(10, words=5, seed=1)
    train[7] = test[3]
    found = find_contamination(ContaminationOptions(file("train", train), (file("test", test),)), puzzle_key)
    assert pairs(found) == [(7, "test", 3, "equal prompt")]


def test_puzzles_are_compared_by_their_statements(tmp_path):
    story = texts(1, words=40)[0]
    train = tmp_path / "train.parquet"
    rows = [row(0, "One wording", statements=RENAMED), row(1, story, statements=OTHER), row(2, story, statements=None)]
    pq.write_table(pa.Table.from_pylist(rows), train)
    test = write(tmp_path / "test.parquet", [story + " more"], split="test", statements=STATEMENTS)
    found = find_contamination(ContaminationOptions(train, (test,)), puzzle_key)
    assert pairs(found) == [(0, "test.parquet", 0, "equal puzzle"), (2, "test.parquet", 0, "overlap")]


WRONG = {
    "no tests": ({"against": ()}, "no test file"),
    "ngram": ({"ngram": 0}, "ngram is 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_refused(name):
    changes, reason = WRONG[name]
    here = Path(__file__)
    with pytest.raises(ValueError, match=reason):
        ContaminationOptions(**({"train": here, "against": (here.parent / "test_data_check.py",)} | changes))
