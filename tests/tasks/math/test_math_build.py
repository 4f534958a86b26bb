"""Data sets from directories and files: the same rows from each format, one schema, and what is dropped and drawn."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tasks import built_files
from tests.tasks.built_files import manifest_of
from tests.tasks.math.deepscaler_files import DEEPSCALER_INSTRUCTION, EXPECTED, RAW, write, write_all
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.math.problems import CONTRADICTED, REPEATED, WITHOUT_ANSWER
from verl_trgrpo.tasks.math.rows import DeepscalerOptions


def build(out, *words):
    return built_files.build(out, "deepscaler", *words)


def build_code(out, *words):
    return built_files.main(["data", "build", "deepscaler", *map(str, words), "--out", str(out)])


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


@pytest.mark.parametrize(("instruction", "asked"), [("Be brief.", "Why? Be brief."), ("", "Why?")])
def test_the_instruction_is_another_one_or_none(tmp_path, instruction, asked):
    source = write(tmp_path / "raw.json", [{"problem": "Why?", "answer": "0"}])
    files = build(tmp_path / "out", "--source", source, "--instruction", instruction)
    assert files["train.parquet"][0]["prompt"] == [{"role": "user", "content": asked}]


def test_the_sets_that_are_asked_for_or_those_that_are_there(tmp_path, source):
    one, two = {"minerva.parquet"}, {"aime2024.parquet", "minerva.parquet"}
    assert build(tmp_path / "asked", "--source", source, "--sets", "minerva").keys() == one
    for path in source.iterdir():
        if path.stem not in ("aime", "minerva"):
            path.unlink()
    assert build(tmp_path / "there", "--source", source).keys() == two


# A copy of each set's repository, beside others, and the hub's cache.
HUB_FILES = {
    "deepscaler": "DeepScaleR-Preview-Dataset/deepscaler.json",
    "aime": "HuggingFaceH4/aime_2024/data/train-00000-of-00001.parquet",
    "amc": "datasets--AI-MO--aimo-validation-amc/snapshots/8ef2/data/train-00000-of-00001.parquet",
    "math": "HuggingFaceH4/MATH-500/test.jsonl",
    "minerva": "minervamath/data/test-00000-of-00001.parquet",
    "olympiad_bench": "OlympiadBench/OE_TO_maths_en_COMP/OE_TO_maths_en_COMP.parquet",
}


def test_a_directory_of_the_hubs_repositories_is_a_source_as_it_is(tmp_path):
    for raw, name in HUB_FILES.items():
        write(tmp_path / "hub" / name, RAW[raw])
    write(tmp_path / "hub" / "minervamath" / "data" / "train-00000-of-00001.parquet", RAW["aime"])
    write(tmp_path / "hub" / "OlympiadBench" / "OE_TO_physics_en_COMP" / "OE_TO_physics_en_COMP.parquet", RAW["aime"])
    files = build(tmp_path / "out", "--source", tmp_path / "hub")
    assert {name: len(rows) for name, rows in files.items()} == {
        name: len(truths) for name, (_, truths) in EXPECTED.items()
    }
    alone = build(tmp_path / "alone", "--source", tmp_path / "hub" / HUB_FILES["aime"])
    assert alone.keys() == {"aime2024.parquet"}  # by its path, though its name says train


def test_repetitions_contradictions_and_missing_answers_are_counted(tmp_path, capsys):
    answers = [("a 1", "1"), ("b", "2"), ("a  1", "1.0"), ("c", "3"), ("c", "4"), ("d", "5"), ("e", None)]
    train = [{"problem": problem, "answer": answer} for problem, answer in answers]
    source = write(tmp_path / "deepscaler.jsonl", train)
    files = build(tmp_path / "out", "--source", source)
    assert [kept["extra_info"]["origin"] for kept in files["train.parquet"]] == [
        f"deepscaler.jsonl#{number}" for number in (1, 2, 6)
    ]
    dropped = {REPEATED: 1, CONTRADICTED: 2, WITHOUT_ANSWER: 1}
    assert manifest_of(tmp_path / "out")["counts"]["deepscaler"] == {"read": 7, "kept": 3, "dropped": dropped}
    assert "deepscaler: 3 kept of 7 read; 1 dropped: repeats" in capsys.readouterr().out


def test_a_limit_draws_from_each_set(tmp_path, source):
    files = build(tmp_path / "out", "--source", source, "--limit", "3")
    assert [len(files[name]) for name in EXPECTED] == [3, 1, 2, 1, 2, 1]
    assert manifest_of(tmp_path / "out")["counts"]["deepscaler"]["dropped"] == {"not drawn for the limit": 5}


@pytest.mark.parametrize("name", ["aime.json", "aime.jsonl"])
def test_a_file_with_the_name_of_a_test_set_builds_that_set(tmp_path, name):
    source = write(tmp_path / name, RAW["aime"])
    files = build(tmp_path / "out", "--source", source)
    assert files.keys() == {"aime2024.parquet"}
    assert files["aime2024.parquet"][0]["extra_info"]["split"] == "test"
    other = write(tmp_path / f"my_{name}", RAW["aime"])
    assert build(tmp_path / "other", "--source", other).keys() == {"train.parquet"}


def test_a_rounded_ground_truth_is_marked_and_the_reward_reads_the_mark(tmp_path):
    answers = {"0.6666666667": True, "0.333": False, "\\frac{2}{3}": False, "7": False, 6.666666666666667: True}
    raw = [{"problem": f"Problem {number}", "answer": answer} for number, answer in enumerate(answers)]
    raw.append({"problem": "Two alternatives", "answer": ["0.6666666667", "0.7"]})
    files = build(tmp_path / "out", "--source", write(tmp_path / "deepscaler.json", raw))
    rows = files["train.parquet"]
    assert [row["extra_info"]["rounded_gold"] for row in rows] == [*answers.values(), False]

    def right(row, answer, **info):
        truth = row["reward_model"]["ground_truth"]
        return compute_score(row["data_source"], f"\\boxed{{{answer}}}", truth, row["extra_info"] | info)["acc"] == 1.0

    marked, short = rows[0], rows[1]
    assert all(right(marked, answer) for answer in ("2/3", "0.66666666667", "0.6666666667"))
    assert not any(right(marked, answer) for answer in ("0.67", "0.66666666679", "3/5"))
    assert right(short, "0.333") and not right(short, "1/3") and not right(short, "0.3333")
    assert right(short, "1/3", rounded_gold=True) and not right(short, "2/3", rounded_gold=True)


def test_a_source_with_natural_logarithms_is_marked_and_the_reward_reads_the_mark(tmp_path):
    source = write(tmp_path / "deepscaler.json", [{"problem": "Find the area.", "answer": "\\log 2"}])

    def paid(*options):
        out = tmp_path / "_".join(["out", *options])
        [row] = build(out, "--source", source, *options)["train.parquet"]
        truth = row["reward_model"]["ground_truth"]
        answers = (r"\boxed{\ln 2}", r"\boxed{\log_{10} 2}")
        return [compute_score(row["data_source"], each, truth, row["extra_info"])["acc"] for each in answers]

    assert paid() == [0.0, 1.0]
    assert paid("--natural-log") == [1.0, 0.0]


def problems(count):
    return [{"problem": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(count)]


def test_files_in_a_directory_of_train_files_are_no_test_sets(tmp_path, capsys, caplog):
    for directory in (tmp_path / "train" / "math", tmp_path / "train"):
        write(directory / "aime.json", problems(3))
        assert build_code(tmp_path / "none", "--source", directory) == 2
        assert "deepscaler.json" in capsys.readouterr().err
        write(directory / "deepscaler.json", problems(2))
        caplog.clear()
        assert build(tmp_path / f"out_{directory.name}", "--source", directory).keys() == {"train.parquet"}
        [record] = caplog.records
        assert "aime.json (" in record.getMessage()
        assert "aime.json" in manifest_of(tmp_path / f"out_{directory.name}")["left_out"]
        alone = build(tmp_path / f"alone_{directory.name}", "--source", directory / "aime.json")
        assert alone.keys() == {"train.parquet"} and len(alone["train.parquet"]) == 3


@pytest.mark.parametrize("name", ["mine_test.jsonl", "held_out.parquet", "test.json"])
def test_a_test_file_of_ones_own_becomes_a_test_file(tmp_path, name, caplog):
    source = write(tmp_path / name, problems(3))
    [(built, rows)] = build(tmp_path / "out", "--source", source).items()
    assert (built, len(rows), caplog.records) == ("test.parquet", 3, [])
    assert {(row["data_source"], row["extra_info"]["split"]) for row in rows} == {("deepscaler", "test")}


def test_a_file_with_more_problems_than_its_test_set_is_refused(tmp_path, capsys):
    source = write(tmp_path / "aime.jsonl", problems(30) * 4)
    assert len(build(tmp_path / "repeated", "--source", source)["aime2024.parquet"]) == 30
    write(source, problems(31))
    assert build_code(tmp_path / "out", "--source", source) == 2
    error = capsys.readouterr().err
    assert "aime.jsonl: 31 different problems" in error and "aime2024 has 30" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["the hub's", "with empty answers"])
def test_gsm8ks_solutions_are_read(tmp_path, kind):
    solution = "She sold 48 / 2 = <<48/2=24>>24 clips.\nThat is 48 + 24 = <<48+24=72>>72.\n#### {}"
    rows = [
        {"question": f"How many, {gold}?", "answer": solution.format(gold)}
        if kind == "the hub's"
        else {"problem": f"How many, {gold}?", "solution": solution.format(gold), "answer": None}
        for gold in ("72", "1,080", "-3", "$5.50")
    ]
    files = build(tmp_path / "out", "--source", write(tmp_path / "gsm8k.json", rows))
    golds = [row["reward_model"]["ground_truth"] for row in files["train.parquet"]]
    assert golds == [["72"], ["1080"], ["-3"], ["$5.50"]]


@pytest.mark.parametrize("prompt", ["Why?", [{"role": "user", "content": "Why?"}], [{"from": "user", "value": "Why?"}]])
def test_problems_under_prompt_are_read(tmp_path, prompt):
    source = write(tmp_path / "raw.json", [{"prompt": prompt, "answer": "0"}])
    [row] = build(tmp_path / "out", "--source", source, "--instruction", "")["train.parquet"]
    assert row["prompt"] == [{"role": "user", "content": "Why?"}]


def test_an_arrow_file_is_read(tmp_path):
    table = pa.Table.from_pylist(problems(3))
    with pa.ipc.new_stream(str(tmp_path / "deepscaler.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert len(build(tmp_path / "out", "--source", tmp_path / "deepscaler.arrow")["train.parquet"]) == 3


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
        [{"id": 60, "problem": "Add 20 and 5.", "answer": "025", "solution": "", "url": "", "year": "2024"}],
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
    "svamp": (
        "test.json",
        [{"ID": "chal-1", "Body": "Ann has 8 eggs.", "Question": "How many if she eats 3?", "Answer": "5.0"}],
    ),
}


def test_the_sets_from_copies_of_their_repositories(tmp_path, monkeypatch, datasets_cache):
    """The library reads a directory as it reads the hub."""
    places, _ = DeepscalerOptions(out=tmp_path / "out", sets=tuple(COPIES)).places()
    for name, (path, rows) in COPIES.items():
        hub = places[name]
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
    assert arguments["hub"]["minerva"]["revision"] == places["minerva"].revision
    [(name, [row])] = build(tmp_path / "asked", "--source", "hf", "--sets", "svamp").items()
    assert (name, row["data_source"], row["reward_model"]["ground_truth"]) == ("svamp.parquet", "svamp", ["5.0"])
    assert row["extra_info"]["question"] == "Ann has 8 eggs. How many if she eats 3?"
    assert compute_score("svamp", r"\boxed{5}", ["5.0"], row["extra_info"])["score"] == 1


def test_a_copy_of_svamp_is_a_test_set_and_its_train_file_alone_trains(tmp_path):
    rows = [{"Body": f"Ann has {n} eggs.", "Question": "How many eggs?", "Answer": n} for n in range(3)]
    hub = tmp_path / "ChilleD" / "SVAMP"
    files = {split: write(hub / f"{split}.json", rows[number:]) for number, split in enumerate(("train", "test"))}
    built = build(tmp_path / "out", "--source", hub)
    assert {name: len(rows) for name, rows in built.items()} == {"svamp.parquet": 2}
    assert len(build(tmp_path / "alone", "--source", files["train"])["train.parquet"]) == 3
