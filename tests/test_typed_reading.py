"""Files that somebody else made are read through schemas: odd values of any field end no command with a traceback.

The schemas are found in the sources, their fields in the classes; what is planted is the same for all.
"""

import ast
import importlib
import json
import shutil
import unicodedata
from pathlib import Path

import pytest

import verl_trgrpo
from tests.foreign_runs import CONFIG, DUMP, METRICS, OPTIONS, RECORD, RESPONSES, call, commands, study, write_lines

PACKAGE = Path(verl_trgrpo.__file__).parent
HUGE = int("9" * 400)
ODD = [
    None, True, False, 0, -1, 1.5, HUGE, -HUGE, 1 << 60, float("inf"), float("nan"), "", "word", "\ud800", "\x1b]0;x\x07",
    "a\u202eb\nc", "x" * 10_000, "9" * 400, [], [1, None], [[]], {}, {"a": {}}, {"\ud800": 1}, {"a\x1b[2J": "b"},
]  # fmt: skip


def whole_file(name, content, key=()):
    """Write a file whose field `key` is replaced; without a key, whose whole content is."""

    def plant(run, field, value):
        new = value
        if field:
            new = json.loads(json.dumps(content))
            place = new
            *above, last = [*key, *field.split(".")]
            for part in above:
                place = place[part]
            place[last] = value
        (run / name).write_text(json.dumps(new))

    return name, plant


def line_of(name, lines):
    """Write lines of which the second one has the value, or is the value."""

    def plant(run, field, value):
        write_lines(run / name, [lines[0], lines[1] | {field: value} if field else value, *lines[2:]])

    return name, plant


# Where each schema's content stands, and the commands that read it.
FILES = {
    "RunRecord": (*whole_file("run.json", RECORD), ["report", "export", "compare"]),
    "StudyRecord": (*whole_file("run.json", RECORD, ["study"]), ["report", "compare"]),
    "OptionsRecord": (*whole_file("options.json", OPTIONS), ["report", "export"]),
    "ConfigKeys": (*whole_file("config.yaml", CONFIG), ["report", "export"]),
    "MetricsLine": (*line_of("metrics-1.jsonl", METRICS), ["report", "health", "export", "compare"]),
    "ResponseLine": (*line_of("answers.jsonl", RESPONSES), ["responses"]),
    "DumpedLine": (*line_of("validation/3.jsonl", DUMP), ["report"]),
}


def schemas():
    """All classes of the package that are schemas, found in its sources."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and "Schema" in [getattr(base, "id", "") for base in node.bases]:
                module = ".".join(["verl_trgrpo", *path.relative_to(PACKAGE).with_suffix("").parts])
                found[node.name] = getattr(importlib.import_module(module), node.name)
    return found


def test_every_schema_has_a_file():
    assert schemas().keys() == FILES.keys(), "a new schema needs its row: the file, and who reads it"


def fields(schema):
    return [field.alias or name for name, field in schema.model_fields.items()]


CASES = [(name, field) for name, schema in schemas().items() for field in ["", *fields(schema)]]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    directory = tmp_path_factory.mktemp("template")
    study(directory)
    return directory


@pytest.mark.parametrize(("name", "field"), CASES)
def test_odd_values_end_no_command_with_a_traceback(tmp_path, template, caplog, name, field):
    """Each value by one of the commands that read it, in turn, so that a field has them all."""
    file, plant, readers = FILES[name]
    refused = 0
    for number, value in enumerate(ODD):
        directory = tmp_path / str(number)
        shutil.copytree(template, directory)
        run = directory / "out" / "runs" / "tr_grpo" / "seed-0"
        if name == "OptionsRecord":
            (run / "config.yaml").unlink()
        plant(run, field, value)
        reader = readers[(number + len(field)) % len(readers)]
        code, said = call(commands(directory, run)[reader], caplog)
        assert code in (0, 1, 2), (reader, value)
        acting = {
            char for char in said if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        }
        assert not acting and "Traceback" not in said, (reader, value)
        if "is damaged" in said and "while parsing" not in said:
            refused += 1
            assert Path(file).name in said and field in said, (reader, value, said)
            assert "correct" in said or "restore" in said
        assert code != 2 or reader == "compare" or file in said, (reader, value, said)
        shutil.rmtree(directory)
    assert refused or field in ANYTHING, "no value is refused"


# Fields whose values are only shown, or of which those of other types do not count.
ANYTHING = ("gts", "score", "acc")


# Who may parse JSON without a schema, and why.
UNTYPED = {
    "common/foreign.py": "the door to files, which the typed door uses",
    "common/typed.py": "the typed door",
    "common/files.py": "rows of any columns, and files whose readers stand below",
    "common/sandbox.py": "messages between this package's own processes",
    "checks/machine.py": "words of this package's own process",
    "data/sources.py": "rows of any columns, which data/rows.py checks",
    "data/rows.py": "ground truths, foreign values of any type",
    "data/renderer.py": "messages between this package's own processes",
    "data/write.py": "the manifest is compared with another; _files_of checks its names",
    "data_check.py": "text that this command wrote itself",
    "tasks/reasoning_gym/reward.py": "the ground truth of a row, a foreign value of any type that its verifier gets",
    "tasks/reasoning_gym/rows.py": "ground truths that the builder wrote itself, and values of --config of any type",
    "tasks/search_qa/client.py": "an answer of a search server, checked there value by value",
    "retrieval/app.py": "a request, for its own pydantic model",
    "retrieval/index.py": "the manifest of an index, checked there value by value",
    "evaluation/checkpoint.py": "compared as a whole with what it should be",
    "evaluation/response_store.py": "arguments are compared as a whole",
    "checks/files.py": "a model's configuration: what is not an object counts as not there",
    "checks/resume.py": "one number, compared with 1 and 2",
    "checks/view.py": "a model's configuration: only integers are taken",
    "data/prompts.py": "the type of a model, handed to veRL",
    "verl_plugin/estimator_state.py": "state of the estimator; its checkpoint is a pickle that is trusted",
}
PARSERS = ("loads", "read_json", "read_foreign_json", "json_lines")


def parsing_files():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            if name in PARSERS:
                yield str(path.relative_to(PACKAGE))


def test_json_is_parsed_through_a_schema_but_where_it_is_declared():
    assert {*parsing_files()} == UNTYPED.keys()
