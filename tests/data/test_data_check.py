"""`check_files`: every finding has a planted defect that triggers it, and the clean files trigger none."""

import ast
import copy
import importlib.util
import json
import math
import statistics
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_trgrpo.data.check import CheckOptions, check_files
from verl_trgrpo.data.checks.files import first_difference
from verl_trgrpo.data.checks.findings import CHECKS
from verl_trgrpo.data.checks.lengths import histogram, summarize
from verl_trgrpo.data.checks.report import render
from verl_trgrpo.data.checks.rows import VERL_DATA_SOURCES, VERL_PREFIX
from verl_trgrpo.rewards import Score
from verl_trgrpo.rewards.registry import _families, register_reward

CHAT_TEMPLATE = (
    "{% for m in messages %}{% if 'forbidden' in m['content'] %}{{ raise_exception('not this word') }}{% endif %}"
    "<|turn|>{{ m['role'] }}\n{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def row(i, split="train", **changes):
    truth = f"(1) Zoey is a knight\n(2) Oliver{i} is a knave"
    made = {
        "data_source": "kk_2ppl",
        "prompt": [{"role": "user", "content": f"Zoey meets Oliver{i} in the {split} file. Who is a knight?"}],
        "ability": "logic",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": i, "split": split},
    }
    return made | changes


def user(content):
    return [{"role": "user", "content": content}]


def write(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def clean(split="train", count=6):
    return [row(i, split) for i in range(count)]


def results(*paths, **options):
    return {check.name: check for check in check_files(CheckOptions(files=paths, **options)).checks}


def test_clean_files_have_no_finding(tmp_path):
    train, test = write(tmp_path / "train.parquet", clean()), write(tmp_path / "test.parquet", clean("test", 3))
    more = write(tmp_path / "more.parquet", [row(i, prompt=user(f"More of {i}")) for i in range(3)])
    report = check_files(CheckOptions(files=(test, train, more)))
    found = {check.name: check.status for check in report.checks}
    assert list(found) == list(CHECKS)
    unchecked = {"chat template", "prompt length"}
    assert found == {name: "not checked" if name in unchecked else "ok" for name in CHECKS}
    assert [(facts.name, facts.rows, facts.role) for facts in report.files] == [
        ("test.parquet", 3, "test"),
        ("train.parquet", 6, "train"),
        ("more.parquet", 3, "train"),
    ]


def turns(*roles):
    return [{"role": role, "content": f"words of the {role} {i}"} for i, role in enumerate(roles)]


def truth(value):
    return {"reward_model": {"style": "rule", "ground_truth": value}}


# What replaces row 2 of a clean file of six rows -> the check, its status, a part of its example.
ROW_DEFECTS = {
    "no prompt": ({"prompt": None}, "prompt", "error", "the prompt is None"),
    "no messages": ({"prompt": []}, "prompt", "error", "the prompt is []"),
    "unknown role": ({"prompt": turns("human")}, "prompt", "error", "role 'human'"),
    "no role": ({"prompt": turns(None)}, "prompt", "error", "role None"),
    "empty content": ({"prompt": user(" \n")}, "prompt", "error", "message 0 (user) is empty"),
    "no content": ({"prompt": user(None)}, "prompt", "error", "content None"),
    "assistant last": ({"prompt": turns("user", "assistant")}, "prompt", "error", "the last message is the assistant's"),
    "two users": ({"prompt": turns("user", "user")}, "message order", "warning", "user, user"),
    "late system": ({"prompt": turns("user", "system", "user")}, "message order", "warning", "user, system, user"),
    "chat tags": ({"prompt": user("<|im_start|>user\nHi<|im_end|>")}, "chat tags", "error", "<|im_start|>, <|im_end|>"),
    "opened think": ({"prompt": user("Solve it. <think>\n")}, "chat tags", "error", "<think>"),
    "no index": ({"extra_info": {"index": None, "split": "train"}}, "index", "warning", "no extra_info.index"),
    "index twice": ({"extra_info": {"index": 1, "split": "train"}}, "index", "warning", "1 is there before"),
    "no extra_info": ({"extra_info": None}, "index", "warning", "no extra_info.index"),
    "unknown source": ({"data_source": ""}, "data source", "error", "no reward for ''"),
    "null source": ({"data_source": None}, "data source", "error", "no reward for None"),
    "source of veRL": ({"data_source": "openai/gsm8k"}, "data source", "warning", "custom_reward_function.path=null"),
    "empty truth": (truth(" "), "ground truth", "error", "says nothing"),
    "no truth": (truth(None), "ground truth", "error", "says nothing"),
    "no reward_model": ({"reward_model": None}, "ground truth", "error", "says nothing"),
    "malformed truth": (truth("Zoey is a knight"), "reward of gold", "error", "raises ValueError: malformed"),
    "duplicate": (row(1), "duplicates", "warning", "same prompt as data.parquet row 1"),
    "duplicate in capitals": (
        row(1, prompt=user("ZOEY  meets Ｏliver1 in the train\nfile. Who is a knight?")),
        "duplicates", "warning", "same prompt as data.parquet row 1",
    ),
    "conflict": ({"prompt": row(1)["prompt"]}, "conflicts", "error", "same prompt as data.parquet row 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROW_DEFECTS)
def test_a_planted_defect_is_found_in_its_row(tmp_path, name):
    changes, check, status, example = ROW_DEFECTS[name]
    rows = clean()
    rows[2] = rows[2] | changes
    found = results(train := write(tmp_path / "data.parquet", rows), rewards=check == "reward of gold")
    assert found[check].status == status, found
    assert found[check].affected == 1
    assert found[check].examples[0].startswith("data.parquet row 2: ")
    assert example in found[check].examples[0]
    twin = results(write(train, clean()), rewards=check == "reward of gold")
    assert twin[check].status == "ok"


def test_an_answer_that_the_reward_misreads_is_no_false_alarm_for_the_others(tmp_path):
    rows = clean()
    rows[2] |= truth("(1) Zoey is a knight\n(2) Zoey is a knave")
    found = results(write(tmp_path / "data.parquet", rows))
    assert (found["reward of gold"].status, found["reward of gold"].affected) == ("error", 1)
    assert (found["ground truth"].status, found["columns"].status) == ("ok", "ok")


@pytest.mark.parametrize(
    ("value", "kind"), [(142.0, "float"), (math.nan, "NaN"), (7, "int"), (True, "bool"), ({"a": 1.5}, "float")]
)
def test_a_ground_truth_that_is_no_text_is_a_warning(tmp_path, value, kind):
    rows = [row(i) | truth(value) | {"data_source": "math"} for i in range(3)]
    found = results(write(tmp_path / "data.parquet", rows), rewards=False)["ground truth"]
    assert (found.status, found.affected) == ("warning", 3)
    assert found.examples[0].startswith(f"data.parquet row 0 and 2 more: reward_model.ground_truth holds a {kind};")


def test_a_problem_that_all_rows_share_is_shown_once_with_its_number(tmp_path):
    found = results(write(tmp_path / "data.parquet", [row(i, data_source="") for i in range(50)]))["data source"]
    assert found.affected == 50
    assert len(found.examples) == 1
    assert found.examples[0].startswith("data.parquet row 0 and 49 more: no reward for ''")
    assert found.more == 0


def test_problems_that_are_not_shown_are_counted(tmp_path):
    report = check_files(
        CheckOptions(files=(write(tmp_path / "a.parquet", [row(i, data_source=f"s{i}") for i in range(9)]),))
    )
    found = next(check for check in report.checks if check.name == "data source")
    assert (found.affected, len(found.examples), found.more) == (9, 3, 6)
    assert "and 6 more" in render(report)


def drop(*names):
    return lambda rows: [{name: value for name, value in r.items() if name not in names} for r in rows]


def replace(**values):
    return lambda rows: [r | values for r in rows]


COLUMN_DEFECTS = {
    "no data source": (drop("data_source"), "error", "it has no data_source"),
    "no prompt": (drop("prompt", "reward_model"), "error", "it has no prompt, reward_model"),
    "no extra_info": (drop("extra_info"), "warning", "no extra_info"),
    "no ability": (drop("ability"), "warning", "no ability"),
    "prompt a text": (replace(prompt="Who is who?"), "error", "prompt is string"),
    "prompt of texts": (replace(prompt=["Who is who?"]), "error", "prompt is list"),
    "prompt without role": (replace(prompt=[{"content": "Who?"}]), "error", "role and content"),
    "content a number": (replace(prompt=[{"role": "user", "content": 1}]), "error", "role and content"),
    "data source a number": (replace(data_source=3), "error", "data_source is int64"),
    "reward_model a text": (replace(reward_model="x"), "error", "reward_model is string"),
    "no ground truth": (replace(reward_model={"style": "rule"}), "error", "struct with ground_truth"),
    "extra_info a text": (replace(extra_info="{}"), "error", "extra_info is string"),
    "all null": (replace(prompt=None), "error", "prompt is null"),
}


@pytest.mark.parametrize("name", COLUMN_DEFECTS)
def test_a_wrong_column_is_found(tmp_path, name):
    change, status, example = COLUMN_DEFECTS[name]
    found = results(write(tmp_path / "data.parquet", change(clean())))["columns"]
    assert (found.status, found.affected) == (status, 1)
    assert any(example in text for text in found.examples)


def test_an_index_and_a_split_of_odd_types_are_findings(tmp_path):
    data = write(tmp_path / "data.parquet", [row(0, extra_info={"index": [1], "split": ["train"]})])
    found = results(data)
    assert "extra_info.index is [1]" in found["index"].examples[0]
    assert (found["split"].status, "no single split" in found["split"].note) == ("not checked", True)
    given = {check.name: check for check in check_files(CheckOptions(train=(data,))).checks}
    assert "extra_info.split is ['train'] in a train file" in given["split"].examples[0]


def test_two_columns_of_one_name_are_an_error(tmp_path):
    table = pa.Table.from_arrays([pa.array(["kk"]), pa.array(["kk"])], names=["data_source", "data_source"])
    pq.write_table(table, tmp_path / "data.parquet")
    assert "several columns are called data_source" in results(tmp_path / "data.parquet")["columns"].examples[0]


def damaged(path):
    content = write(path, clean(count=2000)).read_bytes()
    middle = len(content) // 4
    path.write_bytes(content[:middle] + b"\xff" * 2000 + content[middle + 2000 :])


def not_utf8(path):
    table = pa.Table.from_pylist(clean(count=1))
    bad = pa.array([b"kk\xff"], pa.binary()).view(pa.string())
    pq.write_table(table.set_column(table.column_names.index("data_source"), "data_source", bad), path)


FILE_DEFECTS = {
    "no parquet": (lambda path: path.write_text("{}"), "not a readable parquet file"),
    "empty file": (lambda path: path.write_bytes(b""), "not a readable parquet file"),
    "no rows": (lambda path: pq.write_table(pa.Table.from_pylist(clean()).slice(0, 0), path), "it has no rows"),
    "damaged": (damaged, "it is damaged"),
    "not UTF-8": (not_utf8, "it is damaged"),
}


@pytest.mark.parametrize("name", FILE_DEFECTS)
def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path, name):
    make, example = FILE_DEFECTS[name]
    make(tmp_path / "bad.parquet")
    good = write(tmp_path / "good.parquet", [row(0, data_source="")])
    found = results(tmp_path / "bad.parquet", good)
    assert (found["file"].status, found["file"].affected) == ("error", 1)
    assert found["file"].examples[0].startswith("bad.parquet: ")
    assert example in found["file"].examples[0]
    assert any("good.parquet row 0" in text for text in found["data source"].examples)


def test_train_and_test_files_must_not_share_prompts(tmp_path):
    test = clean("test", 4)
    test[3]["prompt"] = user(row(5)["prompt"][0]["content"].upper())
    paths = write(tmp_path / "test.parquet", test), write(tmp_path / "train.parquet", clean())
    found = results(*paths)["overlap"]
    assert (found.status, found.affected) == ("error", 1)
    assert found.examples == ["test.parquet row 3: same prompt as train.parquet row 5"]
    alone = results(paths[0])["overlap"]
    assert (alone.status, alone.note) == ("not checked", "no train file; name them with --train and --test")


STATEMENTS = "(('lying', 1), ('telling-truth', 0), ('and', ('lying', 0), ('telling-truth', 1)))"
RENAMED = "(('telling-truth', 2), ('and', ('telling-truth', 0), ('lying', 2)), ('lying', 0))"
OTHER = "(('lying', 1), ('telling-truth', 0), ('and', ('lying', 0), ('telling-truth', 2)))"


def puzzle(i, split, statements):
    made = row(i, split, extra_info={"index": i, "split": split, "statements": statements})
    return made | {"prompt": user(f"A puzzle told in words of its own, {split} {i}")}


def test_puzzles_with_renamed_people_are_equal(tmp_path):
    train = write(tmp_path / "train.parquet", [puzzle(0, "train", STATEMENTS)])
    for statements, status in ((RENAMED, "error"), (OTHER, "ok"), ("__import__('os')", "ok")):
        found = results(train, write(tmp_path / "test.parquet", [puzzle(0, "test", statements)]))
        assert found["overlap"].status == status
    twice = results(write(train, [puzzle(0, "train", STATEMENTS), puzzle(1, "train", RENAMED)]))
    assert twice["duplicates"].examples == ["train.parquet row 1: same puzzle as train.parquet row 0, names aside"]
    assert twice["conflicts"].status == "ok", "other names, so another ground truth"


def test_the_role_of_a_file_follows_from_its_rows_or_from_the_user(tmp_path):
    mixed = write(tmp_path / "mixed.parquet", [row(0, "train"), row(1, "test")])
    validation = write(tmp_path / "val.parquet", clean("validation"))
    report = check_files(CheckOptions(files=(mixed, validation)))
    assert [facts.role for facts in report.files] == [None, "test"]
    by_name = {check.name: check for check in report.checks}
    assert "mixed.parquet: no single split" in by_name["split"].note
    given = check_files(CheckOptions(train=(mixed,), test=(validation,)))
    assert [facts.role for facts in given.files] == ["train", "test"]
    split = next(check for check in given.checks if check.name == "split")
    assert (split.status, split.affected) == ("warning", 1)
    assert split.examples == ["mixed.parquet row 1: extra_info.split is 'test' in a train file"]


TYPES = {
    "equal": (row(0), row(0), "ok", None),
    "order of fields": (row(0), row(0, extra_info={"split": "train", "index": 3}), "ok", None),
    "float truth": (row(0), row(0) | truth(1.0), "error", ("reward_model.ground_truth", "string", "double")),
    "list truth": (row(0), row(0) | truth(["1"]), "error", ("reward_model.ground_truth", "string", "list<")),
    "field missing": (
        row(0),
        row(0, extra_info={"split": "train"}),
        "warning",
        ("extra_info.index", "int64", "missing"),
    ),
    "column missing": (row(0), drop("ability")([row(0)])[0], "warning", ("ability", "string", "missing")),
    "null column": (row(0), row(0, ability=None), "ok", None),
    "nested": (
        row(0, extra_info={"index": 0, "split": "train", "steps": [{"a": 1}]}),
        row(0, extra_info={"index": 0, "split": "train", "steps": [{"a": "1"}]}),
        "error",
        ("extra_info.steps[].a", "int64", "string"),
    ),
}


@pytest.mark.parametrize("name", TYPES)
def test_concatenation_is_judged_as_the_library_does_it(tmp_path, name):
    import datasets

    one, other, status, difference = TYPES[name]
    paths = write(tmp_path / "a.parquet", [one]), write(tmp_path / "b.parquet", [other])
    found = results(*paths, rewards=False)["concatenation"]
    assert found.status == status
    schemas = [pq.read_schema(path) for path in paths]
    path_and_types = first_difference(*schemas)
    if difference is None:
        assert path_and_types is None
    else:
        assert path_and_types[:2] == difference[:2] and path_and_types[2].startswith(difference[2])
        assert difference[0] in found.examples[0]
    loaded = [datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache")) for path in paths]
    if status == "error":
        with pytest.raises((ValueError, TypeError)):
            datasets.concatenate_datasets(loaded)
    else:
        assert len(datasets.concatenate_datasets(loaded)) == 2


def test_train_and_test_files_are_not_concatenated_with_each_other(tmp_path):
    test = write(tmp_path / "test.parquet", [row(0, "test") | truth(1.0)])
    found = results(write(tmp_path / "train.parquet", clean()), test, rewards=False)["concatenation"]
    assert (found.status, found.note) == ("not checked", "train: one file; test: one file")


def test_data_sources_of_veRL_are_those_in_its_code():  # noqa: N802
    source = Path(importlib.util.find_spec("verl").origin).parent / "utils/reward_score/__init__.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    router = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "default_compute_score")
    tests = [
        node.test for node in ast.walk(router) if isinstance(node, ast.If) and "data_source" in ast.dump(node.test)
    ]
    names = {node.value for test in tests for node in ast.walk(test) if isinstance(node, ast.Constant)}
    assert names - {VERL_PREFIX} == VERL_DATA_SOURCES


@pytest.fixture
def families():
    before = dict(_families)
    yield
    _families.clear()
    _families.update(before)


def exact(response, ground_truth, extra_info):
    return Score(1.0, acc=float(response == f"ANSWER={ground_truth}"))


def test_a_family_says_how_a_right_response_looks(tmp_path, families):
    register_reward("unusual")(exact)
    data = write(tmp_path / "data.parquet", [row(0, data_source="unusual")])
    assert results(data)["reward of gold"].status == "error", "none of the usual forms is right here"
    _families.pop("unusual")
    register_reward("unusual", right_response=lambda gold: f"ANSWER={gold}")(exact)
    assert results(data)["reward of gold"].status == "ok"


@pytest.mark.parametrize("form", ["<think></think><answer>{}</answer>", r"\boxed{{{}}}", "<answer>{}</answer>"])
def test_the_usual_forms_of_answers_are_tried(tmp_path, families, form):
    register_reward("usual")(
        lambda response, gold, info: Score(1.0, acc=float(response == form.format(gold["target"][1])))
    )
    rows = [row(i, data_source="usual") | truth({"target": ["wrong", f"gold {i}"]}) for i in range(3)]
    assert results(write(tmp_path / "data.parquet", rows))["reward of gold"].status == "ok"


@pytest.mark.parametrize(
    ("verdict", "status", "example"),
    [
        ({"acc": 0.0}, "error", "gets acc 0.0"),
        ({"acc": 1.0, "gold_unparseable": 1.0}, "error", "cannot read the ground truth"),
        ({"acc": 0.0, "timed_out": 1.0}, "warning", "timed out"),
    ],
)
def test_verdicts_other_than_right_are_findings(tmp_path, families, verdict, status, example):
    register_reward("moody")(lambda response, gold, info: Score(0.0, **verdict))
    found = results(write(tmp_path / "data.parquet", [row(0, data_source="moody")]))["reward of gold"]
    assert found.status == status
    assert example in found.examples[0]


def test_what_was_not_looked_at_is_said(tmp_path, families):
    _families.clear()
    register_reward("here")(exact)
    from verl_trgrpo.rewards.registry import register_families

    register_families(["broken"], "no_such_module_at_all:score")
    data = write(tmp_path / "data.parquet", [row(0, data_source="broken"), row(1, data_source="unknown")])
    found = results(data)["reward of gold"]
    assert found.status == "not checked"
    assert "the reward of 'broken' cannot be imported" in found.note
    assert "no reward for 'unknown'" in found.note
    assert results(data, rewards=False)["reward of gold"].note == "--no-rewards"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Directory of a tokenizer in which every byte is a token, and <|turn|> is one."""
    import tokenizers
    import transformers

    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=257, initial_alphabet=alphabet, special_tokens=["<|turn|>"], show_progress=False
    )
    model.train_from_iterator([], trainer)
    directory = tmp_path_factory.mktemp("tokenizer")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=model, chat_template=CHAT_TEMPLATE)
    fast.save_pretrained(directory)
    return directory


def test_prompt_lengths_are_those_of_the_rendered_chat(tmp_path, tokenizer):
    contents = ["x" * n for n in (10, 20, 30, 40, 100)]
    data = write(tmp_path / "data.parquet", [row(i, prompt=user(content)) for i, content in enumerate(contents)])
    report = check_files(CheckOptions(files=(data,), tokenizer=tokenizer, max_prompt_length=57, rewards=False))
    # <|turn|>user\n ... \n<|turn|>assistant\n is two special tokens and 16 bytes.
    lengths = report.lengths
    assert (lengths.unit, lengths.min, lengths.median, lengths.p95, lengths.max) == ("tokens", 28, 48, 118, 118)
    assert lengths.over == 2
    found = {check.name: check for check in report.checks}
    assert (found["prompt length"].status, found["prompt length"].affected) == ("warning", 2)
    assert "data.parquet row 3 and 1 more: longer than 57 tokens" in found["prompt length"].examples[0]
    assert found["chat template"].status == "ok"
    fits = results(data, tokenizer=tokenizer, max_prompt_length=118, rewards=False)
    assert fits["prompt length"].status == "ok"


def test_a_prompt_that_the_chat_template_refuses_is_an_error(tmp_path, tokenizer):
    rows = clean()
    rows[4]["prompt"] = user("a forbidden word")
    found = results(write(tmp_path / "data.parquet", rows), tokenizer=tokenizer, rewards=False)["chat template"]
    assert (found.status, found.affected) == ("error", 1)
    assert found.examples == ["data.parquet row 4: it refuses the prompt: not this word"]


def test_special_tokens_of_the_tokenizer_are_chat_tags(tmp_path, tokenizer):
    data = write(tmp_path / "data.parquet", [row(0, prompt=user("<|turn|>user\nHi"))])
    assert results(data, rewards=False)["chat tags"].status == "ok"
    assert results(data, rewards=False, tokenizer=tokenizer)["chat tags"].status == "error"


def test_a_limit_without_a_tokenizer_is_said_to_be_unchecked(tmp_path):
    report = check_files(CheckOptions(files=(write(tmp_path / "a.parquet", clean()),), max_prompt_length=1))
    found = {check.name: check for check in report.checks}["prompt length"]
    assert (found.status, found.note) == ("not checked", "--max-prompt-length needs --tokenizer")
    assert (report.lengths.unit, report.lengths.over) == ("characters", None)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=200), st.integers(0, 5000))
def test_length_summaries_agree_with_the_standard_library(lengths, limit):
    summary = summarize(lengths, "tokens", limit)
    assert summary.median == statistics.median_low(lengths)
    assert sum(length <= summary.p95 for length in lengths) >= 0.95 * len(lengths)
    assert sum(length < summary.p95 for length in lengths) < 0.95 * len(lengths)
    assert (summary.min, summary.max, summary.rows) == (min(lengths), max(lengths), len(lengths))
    assert summary.over == len([length for length in lengths if length > limit])
    assert [count for low, high, count in summary.bins] == [
        sum(low <= length <= high for length in lengths) for low, high, _ in summary.bins
    ]
    assert sum(count for _, _, count in summary.bins) == len(lengths)
    assert len(histogram(summary).splitlines()) == len(summary.bins) <= 10


WRONG_OPTIONS = {
    "no file": ({}, ["no file is given"]),
    "missing files": (
        {"files": ("a.parquet",), "test": ("b.parquet",)},
        ["a.parquet is not a file", "b.parquet is not"],
    ),
    "given twice": ({"train": (__file__,), "test": (__file__,)}, ["given more than once"]),
    "limit": ({"files": ("a.parquet",), "max_prompt_length": 0}, ["max_prompt_length is 0", "a.parquet"]),
}


@pytest.mark.parametrize("name", WRONG_OPTIONS)
def test_wrong_options_are_reported_together(name):
    options, reasons = WRONG_OPTIONS[name]
    options = {key: tuple(map(Path, value)) if isinstance(value, tuple) else value for key, value in options.items()}
    with pytest.raises(ValueError, match=r".") as caught:
        CheckOptions(**options)
    assert all(reason in str(caught.value) for reason in reasons), caught.value


@pytest.mark.parametrize(("content", "reason"), [(None, "is not a directory"), ({}, "no tokenizer could be loaded")])
def test_a_tokenizer_that_cannot_be_loaded_is_wrong_input(tmp_path, content, reason):
    if content is not None:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "config.json").write_text(json.dumps(content))
    data = write(tmp_path / "data.parquet", clean())
    with pytest.raises(ValueError, match=reason):
        check_files(CheckOptions(files=(data,), tokenizer=tmp_path / "model"))


def test_the_report_is_plain_text_that_cannot_drive_a_terminal(tmp_path):
    rows = clean()
    rows[0]["data_source"] = "\x1b[2Jevil\u202e"
    rows[1]["prompt"] = [{"role": "\x1b]0;title\x07", "content": "x"}]
    text = render(check_files(CheckOptions(files=(write(tmp_path / "data.parquet", rows),))))
    assert "evil" in text
    assert all(char == "\n" or char.isprintable() for char in text)
    assert [name for name in CHECKS if not any(line.startswith(name) for line in text.splitlines())] == []


def test_the_report_as_json_types_survives_json(tmp_path):
    report = check_files(CheckOptions(files=(write(tmp_path / "data.parquet", clean()),)))
    assert json.loads(json.dumps(report.as_dict()))["files"][0]["role"] == "train"
    assert copy.deepcopy(report).as_dict() == report.as_dict()
