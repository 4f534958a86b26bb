"""Data sets from directories and files: the same rows from each format, one schema, what is dropped and drawn, errors."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.builder_files import data_in, environment_for, files_in, manifest_of, run_script
from tests.tasks.math.deepscaler_files import (
    DEEPSCALER_INSTRUCTION,
    EXPECTED,
    RAW,
    build,
    main,
    write,
    write_all,
)
from verl_trgrpo.data import schema
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.math.build import NO_ANSWER
from verl_trgrpo.tasks.math.rows import CONTRADICTED, REPEATED
from verl_trgrpo.tasks.math.sources import find_sources


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


def test_all_files_have_one_arrow_schema_and_json_lines_give_the_same_rows(tmp_path, source):
    files = build(tmp_path / "out", "--source", source)
    schemas = [pq.read_schema(tmp_path / "out" / name) for name in EXPECTED]
    assert all(one.equals(schemas[0], check_metadata=True) for one in schemas)
    assert schemas[0].field("reward_model").type.field("ground_truth").type == pa.list_(pa.string())
    for name, rows in build(tmp_path / "lines", "--source", write_all(tmp_path / "l", ".jsonl.gz")).items():
        assert [row["reward_model"] for row in rows] == [row["reward_model"] for row in files[name]]


def test_the_instruction_is_another_one_or_none(tmp_path):
    source = write(tmp_path / "raw.json", [{"problem": "Why?", "answer": "0"}])
    asked = {"role": "user", "content": "Why?"}
    for number, (words, prompt) in enumerate(
        (
            (["Be brief."], [{"role": "user", "content": "Why? Be brief."}]),
            ([""], [asked]),
        )
    ):
        files = build(tmp_path / str(number), "--source", source, "--instruction", *words)
        assert files["train.parquet"][0]["prompt"] == prompt


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
    build(tmp_path / "b" / "x", *words)
    moved = write_all(tmp_path / "elsewhere")
    build(tmp_path / "c" / "x", "--source", moved, *words[2:])
    first = data_in(tmp_path / "a" / "x")
    assert data_in(tmp_path / "b" / "x") == first
    assert data_in(tmp_path / "c" / "x") == first


@pytest.mark.parametrize("name", ["aime.json", "aime.jsonl"])
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
    "a set twice": (["--source", "SOURCE/twice"], ["two files named aime"]),
    "a chat tag": (["--instruction", "<|im_start|>"], ["prompt contains <|im_start|>"]),
    "several at once": (["--limit", "0", "--sets", "x"], ["2 problems", "limit is 0", "has no x"]),
    "malformed rows": (["--source", "SOURCE/bad.jsonl"], ["bad.jsonl, row 1"]),
    "no rows": (["--source", "SOURCE/none.jsonl"], ["train.parquet would have no rows"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_input_gives_one_clear_error_and_leaves_the_old_files(tmp_path, source, capsys, name):
    words, reasons = ERRORS[name]
    out = tmp_path / "out"
    (source / "amc.json").unlink()
    write(source / "empty" / "other.json", [])
    for ending in ("json", "jsonl"):
        write(source / "twice" / f"aime.{ending}", RAW["aime"])
    (source / "bad.jsonl").write_text('{"problem": "", "answer": "1"}\n\n{"problem": "Why?", "answer": true}\n')
    (source / "none.jsonl").write_text("")
    build(out, "--source", source)
    before = files_in(out)
    capsys.readouterr()
    assert (
        main("--out", out, "--force", "--source", source, *(word.replace("SOURCE", str(source)) for word in words)) == 2
    )
    error = capsys.readouterr().err
    assert all(reason in error for reason in reasons), error
    assert files_in(out) == before


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


def test_the_sets_from_copies_of_their_repositories(tmp_path, monkeypatch, datasets_cache):
    """The library reads a directory as it reads the hub."""
    for name, (path, rows) in COPIES.items():
        hub = find_sources("hf")[name]
        write(tmp_path / hub.dataset / path, rows)
        card = CARD.format(configuration=hub.configuration or "default", split=hub.split, path=path)
        (tmp_path / hub.dataset / "README.md").write_text(card)
    monkeypatch.chdir(tmp_path)
    files = build(tmp_path / "out", "--source", "hf")
    golds = {name: [row["reward_model"]["ground_truth"] for row in rows] for name, rows in files.items()}
    assert len(golds.pop("train.parquet")) == len(RAW["deepscaler"])
    assert golds == {
        "aime2024.parquet": [["025"]],
        "amc2023.parquet": [["142"], ["-1"]],
        "math500.parquet": [["0.5"]],
        "minerva.parquet": [["9.6"]],
        "olympiad_bench.parquet": [["$n^{2}$"]],
    }
    origin = files["olympiad_bench.parquet"][0]["extra_info"]["origin"]
    assert origin == "Hothan/OlympiadBench/OE_TO_maths_en_COMP/train#1"
    arguments = manifest_of(tmp_path / "out")["arguments"]
    assert arguments["hub"]["minerva"]["revision"] == find_sources("hf")["minerva"].revision


def test_the_hub_without_a_network(tmp_path):
    words = ["--out", tmp_path / "out", "--sets", "amc2023"]
    done = run_script("deepscaler", environment_for(tmp_path), *words)
    assert done.returncode == 2
    assert done.stderr.startswith("deepscaler.py: error: could not load AI-MO/aimo-validation-amc/train at revision")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
