"""Data sets from directories and files: the same rows from each format, one schema, what is dropped and drawn, errors."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.builder_files import data_in, files_in, manifest_of
from tests.tasks.math.deepscaler_files import (
    DEEPSCALER_INSTRUCTION,
    EXPECTED,
    RAW,
    build,
    content,
    main,
    prepared,
    write,
    write_all,
)
from verl_trgrpo.data import schema
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.math.build import NO_ANSWER
from verl_trgrpo.tasks.math.rows import CONTRADICTED, REPEATED


@pytest.fixture
def source(tmp_path):
    return write_all(tmp_path / "source")


def test_every_set_has_its_rows(tmp_path, source):
    files = build(tmp_path / "out", "--source", source)
    assert files.keys() == EXPECTED.keys()
    for (name, rows), (raw_name, raw) in zip(
        sorted(files.items(), key=lambda item: [*EXPECTED].index(item[0])), RAW.items(), strict=True
    ):
        data_source, golds = EXPECTED[name]
        schema.check_rows(rows)
        assert [row["reward_model"]["ground_truth"] for row in rows] == golds
        for number, (row, given) in enumerate(zip(rows, raw, strict=True), start=1):
            assert row["data_source"] == data_source
            assert row["prompt"] == [{"role": "user", "content": f"{given['problem']} {DEEPSCALER_INSTRUCTION}"}]
            assert row["ability"] == "math"
            info = row["extra_info"]
            assert info["split"] == ("train" if name == "train.parquet" else "test")
            assert info["origin"] == f"{raw_name}.json#{number}"
    about = {name: (rows[0]["extra_info"]["level"], rows[0]["extra_info"]["subject"]) for name, rows in files.items()}
    assert about["amc2023.parquet"] == ("2.5", None)
    assert about["minerva.parquet"] == (None, "Arithmetic (1.0)")
    assert about["olympiad_bench.parquet"] == (None, "Algebra")


def test_all_files_have_one_arrow_schema(tmp_path, source):
    build(tmp_path / "out", "--source", source)
    schemas = [pq.read_schema(tmp_path / "out" / name) for name in EXPECTED]
    assert all(one.equals(schemas[0], check_metadata=True) for one in schemas)
    assert schemas[0].field("reward_model").type.field("ground_truth").type == pa.list_(pa.string())


FORMATS = {
    "compressed json lines": {"file_type": ".jsonl.gz"},
    "prepared for veRL": {"file_type": ".parquet", "change": prepared, "suffix": "_test"},
}


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_gives_the_same_rows(tmp_path, source, name):
    expected = build(tmp_path / "json", "--source", source)
    other = write_all(tmp_path / "other", **FORMATS[name])
    (train,) = other.glob("deepscaler*")
    train.rename(other / train.name.replace("_test", "_train"))
    files = build(tmp_path / "out", "--source", other)
    assert files.keys() == expected.keys()
    for file, rows in files.items():
        if "prepared" in name:  # such files have no level and subject
            for row in expected[file]:
                row["extra_info"] |= {"level": None, "subject": None}
        assert content(rows) == content(expected[file])


@pytest.mark.parametrize(
    "first", [[], ["--instruction", "Be brief."], ["--instruction", "Be brief.", "--instruction-role", "system"]]
)
def test_what_was_built_is_a_source_too(tmp_path, source, first):
    built = build(tmp_path / "one", "--source", source, *first)
    again = build(tmp_path / "two", "--source", tmp_path / "one", *first)
    assert {name: content(rows) for name, rows in again.items()} == {n: content(r) for n, r in built.items()}


@pytest.mark.parametrize(("role", "count"), [("user", 1), ("system", 2)])
def test_another_instruction_replaces_that_of_prepared_files(tmp_path, role, count):
    source = write(tmp_path / "train.parquet", [prepared(row) for row in RAW["deepscaler"]])
    words = ["--source", source, "--instruction", "Be brief.", "--instruction-role", role]
    for row, given in zip(build(tmp_path / "out", *words)["train.parquet"], RAW["deepscaler"], strict=True):
        text = "\n".join(message["content"] for message in row["prompt"])
        assert len(row["prompt"]) == count
        assert sorted(text.replace("Be brief.", "").split()) == sorted(given["problem"].split())
        assert text.count("Be brief.") == 1


def test_without_an_instruction_the_prompt_is_the_problem(tmp_path):
    raw = [{"problem": "How many? Say none", "answer": "0"}]
    bare = prepared(raw[0]) | {"prompt": [{"role": "user", "content": raw[0]["problem"]}]}
    for name, row in (("raw.json", raw[0]), ("prepared.jsonl", prepared(raw[0])), ("bare.jsonl", bare)):
        source = write(tmp_path / name, [row])
        files = build(tmp_path / name.partition(".")[0], "--source", source, "--instruction", "none")
        assert files["train.parquet"][0]["prompt"] == [{"role": "user", "content": "How many? Say none"}]


def test_the_sets_that_are_asked_for_or_those_that_are_there(tmp_path, source):
    one, two = {"minerva.parquet"}, {"aime2024.parquet", "minerva.parquet"}
    assert build(tmp_path / "asked", "--source", source, "--sets", "minerva").keys() == one
    for path in source.iterdir():
        if path.stem not in ("aime", "minerva"):
            path.unlink()
    assert build(tmp_path / "there", "--source", source).keys() == two


def test_repetitions_contradictions_and_missing_answers_are_counted(tmp_path, capsys):
    def row(problem, answer):
        return {"problem": problem, "answer": answer}

    train = [
        row("a 1", "1"),
        row("b", "2"),
        row("a  1", "1.0"),
        row("c", "3"),
        row("c", "4"),
        row("d", "5"),
        row("e", None),
    ]
    source = write(tmp_path / "deepscaler.jsonl", train)
    files = build(tmp_path / "out", "--source", source)
    assert [kept["extra_info"]["origin"] for kept in files["train.parquet"]] == [
        f"deepscaler.jsonl#{number}" for number in (1, 2, 6)
    ]
    dropped = {REPEATED: 1, CONTRADICTED: 2, NO_ANSWER: 1}
    assert manifest_of(tmp_path / "out")["counts"]["deepscaler"] == {"read": 7, "kept": 3, "dropped": dropped}
    assert "deepscaler: 3 kept of 7 read; 1 dropped: repeats" in capsys.readouterr().out


def test_malformed_rows_are_skipped_and_counted_if_wished(tmp_path):
    lines = [json.dumps(row) for row in RAW["deepscaler"][:2]]
    lines += ["{not json", '{"problem": "Why?", "answer": NaN}', "[1]", '{"problem": "", "answer": "1"}']
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    build(tmp_path / "out", "--source", tmp_path / "t.jsonl", "--on-error", "skip")
    manifest = manifest_of(tmp_path / "out")
    assert manifest["counts"]["deepscaler"] == {"read": 6, "kept": 2, "dropped": {"malformed": 4}}
    assert [text.partition(":")[0] for text in manifest["skipped"]] == [f"t.jsonl, row {n}" for n in (3, 5, 4, 6)]


def test_a_limit_draws_rows_with_the_seed_and_keeps_their_order(tmp_path, source):
    def origins(*words):
        out = tmp_path / "-".join(words)
        files = build(out, "--source", source, "--limit", "3", *words)
        assert [len(files[name]) for name in EXPECTED] == [3, 1, 2, 1, 2, 1]
        assert [row["extra_info"]["index"] for row in files["train.parquet"]] == [0, 1, 2]
        return tuple(int(row["extra_info"]["origin"].partition("#")[2]) for row in files["train.parquet"])

    drawn = [origins("--seed", str(seed)) for seed in range(5)]
    assert all(list(numbers) == sorted(set(numbers)) for numbers in drawn)
    assert len(set(drawn)) > 1
    assert manifest_of(tmp_path / "--seed-0")["counts"]["deepscaler"]["dropped"] == {"not drawn for the limit": 5}


def test_same_input_and_seed_give_the_same_bytes(tmp_path, source):
    words = ["--source", source, "--limit", "4", "--seed", "7"]
    build(tmp_path / "a" / "x", *words)
    build(tmp_path / "b" / "x", *words, "--num-proc", "2")
    moved = write_all(tmp_path / "elsewhere")
    build(tmp_path / "c" / "x", "--source", moved, *words[2:])
    first = data_in(tmp_path / "a" / "x")
    assert data_in(tmp_path / "b" / "x") == first
    assert data_in(tmp_path / "c" / "x") == first


@pytest.mark.parametrize("name", ["aime.json", "aime_test.jsonl", "aime2024.parquet"])
def test_a_file_with_the_name_of_a_test_set_builds_that_set(tmp_path, name):
    source = write(tmp_path / name, RAW["aime"])
    files = build(tmp_path / "out", "--source", source)
    assert files.keys() == {"aime2024.parquet"}
    assert files["aime2024.parquet"][0]["extra_info"]["split"] == "test"
    other = write(tmp_path / f"my_{name}", RAW["aime"])
    assert build(tmp_path / "other", "--source", other).keys() == {"train.parquet"}


ERRORS = {
    "an unknown set": (["--sets", "aime2031"], ["has no aime2031", "choose sets from deepscaler, aime2024"]),
    "a set that is not there": (["--sets", "minerva", "amc2023"], ["has no amc2023"]),
    "a source that is not there": (["--source", "nowhere"], ["nowhere does not exist"]),
    "a directory without sets": (["--source", "SOURCE/empty"], ["has none of the sets"]),
    "a set twice": (["--source", "SOURCE/twice"], ["aime.json", "aime_test.json"]),
    "a hub data set for a directory": (["--hf-dataset", "minerva=a/b"], ["hf_dataset goes with source 'hf' only"]),
    "an empty instruction": (["--instruction", " "], ["instruction is empty"]),
    "a chat tag": (["--instruction", "<|im_start|>"], ["prompt contains <|im_start|>"]),
    "several at once": (["--limit", "0", "--num-proc", "0", "--sets", "x"], ["3 problems", "num_proc", "has no x"]),
    "malformed rows": (["--source", "SOURCE/bad.jsonl"], ["bad.jsonl, row 1", "row 3", "--on-error skip"]),
    "no rows": (["--source", "SOURCE/none.jsonl"], ["train.parquet would have no rows"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_input_gives_one_clear_error_and_leaves_the_old_files(tmp_path, source, capsys, name):
    words, reasons = ERRORS[name]
    out = tmp_path / "out"
    (source / "amc.json").unlink()
    write(source / "empty" / "other.json", [])
    for twice in ("aime", "aime_test"):
        write(source / "twice" / f"{twice}.json", RAW["aime"])
    (source / "bad.jsonl").write_text('{"problem": "", "answer": "1"}\n\n{"problem": "Why?", "answer": true}\n')
    (source / "none.jsonl").write_text("")
    build(out, "--source", source)
    before = files_in(out)
    capsys.readouterr()
    assert main("--out", out, "--source", source, *(word.replace("SOURCE", str(source)) for word in words)) == 2
    error = capsys.readouterr().err
    assert all(reason in error for reason in reasons), error
    assert files_in(out) == before


@pytest.mark.slow
def test_rlhf_dataset_reads_all_files_in_one_run(tmp_path, source, load_in_verl, tokenizer):
    build(tmp_path / "out", "--source", source)
    data, batch = load_in_verl([tmp_path / "out" / name for name in EXPECTED])
    assert len(data) == sum(len(golds) for _, golds in EXPECTED.values())
    found = [
        (source, list(reward_model["ground_truth"]))
        for source, reward_model in zip(batch["data_source"], batch["reward_model"], strict=True)
    ]
    assert found == [(source, gold) for source, golds in EXPECTED.values() for gold in golds]
    for messages in batch["raw_prompt"]:
        text = tokenizer.decode(
            tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        )
        assert text.endswith("\\boxed{}.<|im_end|>\n<|im_start|>assistant\n")


def test_each_ground_truth_scores_full_marks(tmp_path, source):
    for rows in build(tmp_path / "out", "--source", source).values():
        for row in rows:
            truth = row["reward_model"]["ground_truth"]
            for gold in truth:
                response = f"It is $\\boxed{{{gold.strip('$')}}}$."
                right = compute_score(row["data_source"], response, truth, row["extra_info"])
                assert (right["score"], right["acc"], right["gold_unparseable"]) == (1.0, 1.0, 0.0)
            wrong = compute_score(row["data_source"], "It is \\boxed{-12345}.", truth, row["extra_info"])
            assert wrong["score"] == 0.0
