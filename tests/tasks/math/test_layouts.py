"""Public layouts of questions with choices or a passage: built whole, or refused, never without what the question needs."""

import json
import re
import shlex

import pytest

from tests.tasks.built_files import main, rows_of
from tests.tasks.math.deepscaler_files import write

TEXTS = ("iron", "gold", "zinc", "lead")
PASSAGE = "The smith of the town has four metals in his shop. " * 12


def question(i):
    return f"Which metal does smith number {i} of the town sell on a day such as this?"


def four(i, *names):
    return dict(zip(names, (f"{text} {i}" for text in TEXTS), strict=True))


def texts(i):
    return [f"{text} {i}" for text in TEXTS]


def listed(i):
    return {"text": texts(i), "label": [*"ABCD"]}


OTHERS = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
# Row number i, in which choice i % 4 is right; the options with which the question is whole; whether it is without options.
LAYOUTS = {
    "MMLU": (lambda i: {"question": question(i), "choices": texts(i), "answer": i % 4}, [], True),
    "MMLU-Pro": (
        lambda i: {"question": question(i), "options": texts(i), "answer": "ABCD"[i % 4], "answer_index": i % 4}, [], True,
    ),
    "ARC": (
        lambda i: {"question": question(i), "choices": listed(i), "answerKey": "ABCD"[i % 4]},
        ["--answer-column", "answerKey"],
        False,
    ),
    "OpenBookQA": (
        lambda i: {"question_stem": question(i), "choices": listed(i), "answerKey": "ABCD"[i % 4]},
        ["--problem-column", "question_stem", "--answer-column", "answerKey"],
        False,
    ),
    "CommonsenseQA": (
        lambda i: {"question": question(i), "question_concept": "metal", "choices": listed(i), "answerKey": "ABCD"[i % 4]},
        ["--answer-column", "answerKey"],
        False,
    ),
    "MedMCQA": (
        lambda i: {"question": question(i), **four(i, "opa", "opb", "opc", "opd"), "cop": i % 4, "exp": PASSAGE},
        ["--answer-column", "cop", "--choices-column", "opa", "opb", "opc", "opd"],
        False,
    ),
    "HellaSwag": (
        lambda i: {"ctx": question(i), "endings": texts(i), "label": str(i % 4)},
        ["--problem-column", "ctx", "--choices-column", "endings"],
        False,
    ),
    "RACE": (
        lambda i: {"article": PASSAGE, "question": question(i), "options": texts(i), "answer": "ABCD"[i % 4]},
        ["--context-column", "article"],
        False,
    ),
    "SciQ": (
        lambda i: {
            "question": question(i), "support": PASSAGE, "correct_answer": texts(i)[i % 4],
            **{f"distractor{n}": text for n, text in enumerate((t for t in texts(i) if t != texts(i)[i % 4]), 1)},
        },
        ["--answer-column", "correct_answer", "--choices-column", "correct_answer", "distractor1", "distractor2", "distractor3"],
        False,
    ),
    "GPQA": (
        lambda i: {
            "Question": question(i), "Correct Answer": texts(i)[i % 4],
            **dict(zip(OTHERS, (t for t in texts(i) if t != texts(i)[i % 4]), strict=True)),
        },
        ["--answer-column", "Correct Answer", "--choices-column", "Correct Answer", *OTHERS],
        False,
    ),
}  # fmt: skip


def build(tmp_path, rows, *words):
    source = write(tmp_path / "raw.parquet", rows)
    return main(
        ["data", "build", "deepscaler", "--source", str(source), "--out", str(tmp_path / "out"), *words, "--force"]
    )


def built(tmp_path):
    return [
        (row["prompt"][-1]["content"], row["reward_model"]["ground_truth"])
        for row in rows_of(tmp_path / "out" / "train.parquet")
    ]


@pytest.mark.parametrize("count", [8, 24])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_question_is_whole_or_refused(tmp_path, name, count):
    row, options, without = LAYOUTS[name]
    rows = [row(i) for i in range(count)]
    answers = [word for at, word in enumerate(options) if {*options[max(0, at - 1) : at + 1]} & {"--answer-column"}]
    answers += ["--problem-column", "ctx"] * (name == "HellaSwag")
    assert build(tmp_path, rows, *([] if name == "OpenBookQA" else answers)) == (
        0 if without or name in ("ARC", "CommonsenseQA") else 2
    )
    assert build(tmp_path, rows, *options) == 0
    made = built(tmp_path)
    assert len(made) == count
    for i, (prompt, truth) in enumerate(made):
        [label] = truth
        assert question(i) in prompt and all(text in prompt for text in texts(i))
        assert f"\n{label}. {texts(i)[i % 4]}\n" in prompt  # the instruction is not a part of the last choice
        assert (PASSAGE.strip() in prompt) == (name == "RACE")
    assert len({tuple(truth) for _, truth in made}) == 4


@pytest.mark.parametrize("name", ["MedMCQA", "HellaSwag", "RACE", "SciQ", "GPQA"])
def test_the_option_that_a_refusal_names_builds_the_file(tmp_path, capsys, name):
    row, options, _ = LAYOUTS[name]
    words = options[: 0 if name == "RACE" else 2]
    assert build(tmp_path, [row(i) for i in range(24)], *words) == 2
    [named] = re.findall(r"(--\w+-column [^,]+), or remove", capsys.readouterr().err)
    assert build(tmp_path, [row(i) for i in range(24)], *words, *shlex.split(named)) == 0
    assert len({tuple(truth) for _, truth in built(tmp_path)}) == 4


NAMES = ["Anna", "Bruno", "Carla", "David", "Elena", "Fritz", "Greta", "Hugo", "Irene", "Jonas", "Klara", "Ludwig"]
THINGS = [
    "bicycle",
    "garden",
    "kitten",
    "lantern",
    "mirror",
    "necklace",
    "orchard",
    "piano",
    "quilt",
    "rabbit",
    "scarf",
    "tent",
]


def story(i):
    """A question that its passage of some 50 characters answers; two questions to a passage."""
    name, thing, colour = NAMES[i // 2 % 12], THINGS[i // 2 % 12], ("red", "green", "blue", "white")[i % 4]
    return {
        "story": f"{name} came by train. The {thing} was {colour}.",
        "question": f"Which colour was the {thing}?" if i % 2 else f"What did {name} see in that colour?",
        "options": ["red", "green", "blue", "white"],
        "answer": "ABCD"[i % 4],
    }


def test_a_short_passage_is_not_lost(tmp_path, capsys):
    assert len(story(0)["story"]) < 60 and build(tmp_path, [story(i) for i in range(24)]) == 2
    assert "--context-column story" in capsys.readouterr().err
    assert build(tmp_path, [story(i) for i in range(24)], "--context-column", "story") == 0


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("remark", lambda i: f"Taken from paper {i} of June, with changes."),  # speaks of no question
        ("remark", lambda i: f"Checked by {NAMES[(i + 7) % 12]} in the spring."),
        ("original_question", lambda i: f"In which colour was the {THINGS[i // 2 % 12]}, please?"),
        ("solution", lambda i: f"The {THINGS[i // 2 % 12]} was painted by {NAMES[i // 2 % 12]}."),
    ],
)
def test_other_sentences_are_no_passage(tmp_path, column, text):
    rows = [{name: value for name, value in story(i).items() if name != "story"} | {column: text(i)} for i in range(24)]
    assert build(tmp_path, rows) == 0


def test_a_missing_column_is_named_once_with_the_option_for_it(tmp_path, capsys):
    row, _, _ = LAYOUTS["ARC"]
    assert build(tmp_path, [row(i) for i in range(24)]) == 2
    told = capsys.readouterr().err
    assert told.count("missing column") == 1 and re.findall(r"--\w+-column", told) == ["--answer-column"]


def test_choices_that_are_counted_from_1_are_refused(tmp_path, capsys):
    row = LAYOUTS["MMLU"][0]
    assert build(tmp_path, [{**row(i), "answer": i % 4 + 1} for i in range(24)]) == 2
    assert "counted from 1" in capsys.readouterr().err


def test_solutions_that_are_not_read_are_no_passage(tmp_path):
    rows = [
        {"question": question(i), "answer": str(i), "r1_solution_1": PASSAGE, "generations": [PASSAGE]}
        for i in range(24)
    ]
    assert build(tmp_path, rows) == 0


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


@pytest.mark.parametrize("chat", [CHAT, json.dumps(CHAT), CHAT[1:]], ids=["a chat", "JSON", "no system message"])
def test_a_chat_keeps_its_system_message(tmp_path, chat):
    assert build(tmp_path, [{"messages": chat, "answer": "1"}]) == 0
    [row] = rows_of(tmp_path / "out" / "train.parquet")
    assert [message["role"] for message in row["prompt"]] == (["user"] if len(chat) == 1 else ["system", "user"])
    assert row["prompt"][-1]["content"].startswith("Why?") and row["extra_info"]["question"] == "Why?"


def test_a_chat_of_several_turns_is_refused(tmp_path, capsys):
    assert build(tmp_path, [{"messages": [*CHAT, {"role": "assistant", "content": "So."}], "answer": "1"}]) == 2
    assert "several turns" in capsys.readouterr().err


def test_one_problem_for_all_rows_is_refused_with_the_columns_that_may_have_the_others(tmp_path, capsys):
    rows = [{"prompt": "Solve it.", "answer": str(i), "task_text": f"Add {i}."} for i in range(5)]
    assert build(tmp_path, rows) == 2
    error = capsys.readouterr().err
    assert "task_text" in error and "--problem-column" in error


def test_files_of_verl_are_known_as_such(tmp_path, capsys):
    assert build(tmp_path, [{"problem": "Why?", "answer": "1"}]) == 0
    (tmp_path / "again").mkdir()
    assert build(tmp_path / "again", rows_of(tmp_path / "out" / "train.parquet")) == 2
    assert "verl-trgrpo data check" in capsys.readouterr().err


def test_data_check_of_a_raw_file_gives_the_command_that_builds_it(tmp_path, capsys):
    source = write(tmp_path / "raw.parquet", [{"question": f"Add {i} and 1.", "answer": str(i + 1)} for i in range(30)])
    assert main(["data", "check", "--train", str(source)]) == 1
    command = f"verl-trgrpo data build deepscaler --source {source} --out {tmp_path / 'raw_verl'}"
    assert command in " ".join(capsys.readouterr().out.split())
    assert main(command.split()[1:]) == 0
    assert main(["data", "check", "--train", str(tmp_path / "raw_verl" / "train.parquet")]) == 0


def test_a_missing_file_names_its_directory_and_its_neighbour(tmp_path, capsys):
    write(tmp_path / "train.parquet", [{"problem": "Why?", "answer": "1"}])
    assert main(["data", "check", "--train", str(tmp_path / "trian.parquet")]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert str(tmp_path) in error and "did you mean train.parquet?" in error
