"""Files that somebody else made are read through schemas: odd values of any field end no reader with a traceback.

The schemas are found in the sources, with their fields; what is planted is the same for all.
"""

import ast
import json
import re
import shutil
import unicodedata
from functools import partial
from pathlib import Path

import pytest

import verl_trgrpo
from tests.data.test_write import data_set, row
from tests.foreign_runs import ODD, OPTIONS, RESPONSES, arms, call, commands, write_lines
from tests.launch.launching import composed, save_checkpoint
from tests.retrieval.servers import PASSAGES, write_corpus
from verl_trgrpo.checks.files import _code_errors
from verl_trgrpo.checks.resume import loading_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.compare.page import read_samples
from verl_trgrpo.data.prompts import model_facts
from verl_trgrpo.data.rows import arrow_schema
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.evaluation.checkpoint import fingerprint, merged_model, model_card
from verl_trgrpo.evaluation.response_store import open_store
from verl_trgrpo.retrieval.index import Index, IndexOptions, build_index
from verl_trgrpo.runs.run_directory import is_finished, recorded_files, run_settings

PACKAGE = Path(verl_trgrpo.__file__).parent
RUN, SHARDED = "out/runs/tr_grpo/seed-0", "sharded/global_step_3"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with everything that is read; each case puts its file back."""
    place = tmp_path_factory.mktemp("place")
    run = arms(place)
    (run / "options.json").write_text(json.dumps(OPTIONS))
    write_lines(run / "answers.jsonl", RESPONSES)
    (run / "arguments.json").write_text('{"seed": 0}')
    shutil.copytree(CHECKPOINT, place / "model")
    (place / "model" / "w.index.json").write_text('{"weight_map": {"w": "model.safetensors"}}')
    data_set(place / "data").write({"train": [row()]}, arrow_schema())
    build_index(IndexOptions(write_corpus(place / "corpus", PASSAGES), place / "index"))
    actor, merged = save_checkpoint(place / "sharded", 3) / "actor", place / SHARDED / "merged_hf"
    merged.mkdir()
    (merged / "merged_from.json").write_text(json.dumps(fingerprint(str(actor))))
    merged.with_name(".merged_hf.old").touch()  # so that a merge, which takes seconds, does not begin
    return place


@pytest.fixture(scope="module")
def readers(place):
    """All that reads files of others, by name; a schema's readers are called with each value."""
    run, model, shards = place / RUN, place / "model", place / SHARDED
    view = RunView(composed(place / "sharded", actor_rollout_ref__model__path=str(model), trainer__resume_mode="auto"))

    def command(name):
        shutil.rmtree(place / "exported", ignore_errors=True)
        return commands(place, run)[name]

    def responses():
        with open_store(run, {"seed": 0}, [Path("answers.parquet")]) as store:
            store.read(0)

    def decoder():
        return RunView(view.run).decoder["vocab_size"]

    functions = {
        "card": lambda: model_card(run / "global_step_3"),
        "settings": lambda: run_settings(run),
        "responses": responses,
        "dump": lambda: read_samples(run / "validation"),
        "finished": lambda: is_finished(view.config, run, 4) or recorded_files(run),
        "resume": lambda: raise_invalid(each.message for each in loading_findings(view)),
        "data": lambda: data_set(place / "data").is_there() or data_set(place / "data", seed=1).is_there(),
        "index": lambda: Index(place / "index").search(["polonium"], 1),
        "weights": lambda: merged_model(str(model), place),
        "merged": lambda: merged_model(str(shards / "actor"), place),
        "code": lambda: raise_invalid(_code_errors(model, model, False, "model")),
        "facts": lambda: (model_facts(view.config), decoder()),
    }
    found = {name: partial(lambda read: (read() and 0) or 0, read) for name, read in functions.items()}
    return lambda name: found.get(name) or command(name)


# Of each schema: its file, the key in it, who reads each value, and the slower commands, of which each reads two.
FILES = {
    "RunRecord": (f"{RUN}/run.json", [], ["card", "finished", "settings"], ["report", "export", "compare"]),
    "StudyRecord": (f"{RUN}/run.json", ["study"], ["card", "finished"], ["report", "compare"]),
    "OptionsRecord": (f"{RUN}/options.json", [], ["card", "settings"], ["report", "export"]),
    "ConfigKeys": (f"{RUN}/config.yaml", [], ["card", "settings"], ["report", "export"]),
    "MetricsLine": (f"{RUN}/metrics-1.jsonl", [], ["health", "card"], ["report", "compare"]),
    "ResponseLine": (f"{RUN}/answers.jsonl", [], ["responses"], []),
    "Arguments": (f"{RUN}/arguments.json", [], ["responses"], []),
    "DumpedLine": (f"{RUN}/validation/3.jsonl", [], ["dump"], ["report"]),
    "Manifest": ("data/manifest.json", [], ["data"], []),
    "FileRecord": ("data/manifest.json", ["files", "train.parquet"], ["data"], []),
    "IndexManifest": ("index/manifest.json", [], ["index"], []),
    "Origin": (f"{SHARDED}/merged_hf/merged_from.json", [], ["merged"], []),
    "ShardRecord": (f"{SHARDED}/actor/fsdp_config.json", [], ["resume"], []),
    "_Described": ("model/config.json", [], ["weights"], []),
    "_Index": ("model/w.index.json", [], ["weights"], []),
    "ModelConfig": ("model/config.json", [], ["code", "facts"], []),
}
# Whose readers need veRL.
ELSEWHERE = {"EstimatorState": "verl_plugin/test_estimator_state.py"}
# Fields whose values are only shown or compared, or of which those of other types do not count.
ANYTHING = ("gts", "score", "acc")


def schemas():
    """The fields of all schemas of the package, found in its sources."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and "Schema" in [getattr(base, "id", "") for base in node.bases]:
                yield node.name, [*map(field_of, (each for each in node.body if isinstance(each, ast.AnnAssign)))]


def field_of(node):
    aliases = [word.value.value for word in getattr(node.value, "keywords", ()) if word.arg == "alias"]
    return aliases[0] if aliases else node.target.id


CASES = [(name, field) for name, fields in schemas() if name not in ELSEWHERE for field in ["", *fields]]


def test_every_schema_has_a_file():
    found = sorted(name for name, _ in schemas())
    assert found == sorted([*FILES, *ELSEWHERE]), "a new schema needs its row: the file, and who reads it"
    for name, file in ELSEWHERE.items():
        assert f"{name}: odd" in (Path(__file__).parent / file).read_text()


def plant(path, key, field, value):
    """Replace a field of the object at `key` in a file, or the object; in a file of lines that of the second line."""
    if path.suffix == ".jsonl":
        lines = path.read_text().splitlines()
        lines[1] = json.dumps(json.loads(lines[1]) | {field: value} if field else value)
        path.write_text("".join(f"{line}\n" for line in lines))
        return
    content = whole = {"": json.loads(path.read_text())}
    *above, last = ["", *key, *field.split(".")] if field else ["", *key]
    for part in above:
        content = content[part]
    content[last] = value
    path.write_text(json.dumps(whole[""]))


@pytest.mark.parametrize(("name", "field"), CASES)
def test_odd_values_end_no_reader_with_a_traceback(place, readers, caplog, name, field):
    file, key, each, slower = FILES[name]
    path, refused = place / file, False
    if name == "OptionsRecord":
        (place / RUN / "config.yaml").rename(place / "config.yaml")
    before = path.read_bytes()
    try:
        for number, value in enumerate(ODD):
            plant(path, key, field, value)
            for reader in [*each, *slower[(number + len(field)) % 7 :][:1]]:
                code, said = call(readers(reader), caplog)
                assert code in (0, 1, 2), (reader, value)
                acting = {char for char in said if char != "\n" and unicodedata.category(char) in ACTING}
                assert not acting and "Traceback" not in said, (reader, value)
                if "is damaged" in said and not any(reason in said for reason in ("while parsing", "recursion")):
                    refused = True
                    assert path.name in said and field in said, (reader, value, said)
                    assert "correct" in said or "restore" in said
                assert code != 2 or path.name in said or reader in SAYS_MORE, (reader, value, said)
            path.write_bytes(before)
        assert {one.name for one in (place / "data").iterdir()} == {"manifest.json", "train.parquet"}
    finally:
        path.write_bytes(before)
        if name == "OptionsRecord":
            (place / "config.yaml").rename(place / RUN / "config.yaml")
    assert refused or field in ANYTHING, "no value is refused"


@pytest.mark.parametrize("name", FILES)
def test_a_key_that_stands_twice_is_named_and_neither_value_taken(place, readers, caplog, name):
    file, key, each, slower = FILES[name]
    if name in ("OptionsRecord", "ConfigKeys"):  # a run has one of the two; YAML is OmegaConf's to read
        return
    path = place / file
    before = path.read_text()
    start = (
        before.index(f'"{key[-1]}"') + len(key[-1]) + 2
        if key
        else max(0, before.find("\n")) * (path.suffix == ".jsonl")
    )
    first = re.search(r'\{\s*("[^"]*": )', before[start:])
    place_of_key = start + first.start() + 1
    try:
        path.write_text(f"{before[:place_of_key]}{first[1]}null, {before[place_of_key:]}")
        said = "".join(call(readers(reader), caplog)[1] for reader in [*each, *slower[:1]])
    finally:
        path.write_text(before)
    assert "occurs twice" in said and path.name in said, said


ACTING = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Of a value that has its type and is another: what is found then, such as other settings, is not a fault of the file.
SAYS_MORE = ("compare", "data", "index", "merged", "code", "resume", "responses")


# Why JSON is parsed without a schema, and where: once for each name.
UNTYPED = {
    "the doors themselves": [
        "common/foreign.py parse_json", "common/foreign.py read_foreign_json", "common/typed.py read_typed",
        "common/typed.py typed_line",
    ],
    "messages between this package's own processes": [
        "checks/machine.py _load", "common/sandbox.py Sandbox._start", "common/sandbox.py Sandbox.ask",
        "common/sandbox.py _Worker.__init__", "common/sandbox.py _Worker.answer", "common/sandbox.py _work",
        "common/sandbox.py main", "data/renderer.py _opened", "data/renderer.py _rendered",
    ],
    "what the function itself has written": [
        "tasks/data_set.py DataSet._identity", "data/questions/repeats.py SeenPrompts._are_equal",
        "data/questions/repeats.py SeenPrompts.remarks",
        "evaluation/response_store.py open_store", "tasks/reasoning_gym/reward.py dataset_of",
        "tasks/reasoning_gym/rows.py copied_answers", "tasks/reasoning_gym/rows.py wrong_answers",
    ],
    "rows of any columns, checked value by value": [
        "common/files.py json_lines", "data/sources.py _numbered_rows", "data/sources.py _numbered_rows",
        "data/rows.py extra_info_of", "data/verl_files.py _open_json", "retrieval/index.py read_corpus",
        "tasks/math/problems.py _read_chat",
    ],
    "ground truths and answers of any type, which a verifier gets": [
        "tasks/reasoning_gym/reward.py _check_verifiable", "tasks/reasoning_gym/reward.py read_entry",
        "tasks/reasoning_gym/reward.py verify", "tasks/reasoning_gym/rows.py _value",
    ],
    "a request, for its own pydantic model": ["retrieval/app.py parse_request"],
    "a model's configuration, which transformers' own class takes": ["memory/run.py model_config"],
    "an answer of a search server, checked value by value": ["tasks/search_qa/client.py parse_answer"],
}  # fmt: skip
# What parses without a look at keys that stand twice: not for what others made.
RAW = ("loads", "raw_decode", "model_validate_json")
PARSERS = (*RAW, "parse_json", "read_foreign_json", "json_lines")
OWN = ("messages between this package's own processes", "what the function itself has written")


def parsing_calls(node, place):
    """Yield the file and function of each call that parses JSON to values of any type, and whether it is a raw one."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        place = f"{place}{'.' if ' ' in place else ' '}{node.name}"
    if isinstance(node, ast.Call):
        name, of = getattr(node.func, "attr", getattr(node.func, "id", "")), getattr(node.func, "value", None)
        bare = any(getattr(word, "id", "") == "Schema" for word in node.args)
        raw = name in RAW or (name == "load" and getattr(of, "id", "") == "json")
        if name in PARSERS or bare or raw:
            yield place, raw
    for child in ast.iter_child_nodes(node):
        yield from parsing_calls(child, place)


def test_json_is_parsed_through_a_schema_but_where_it_is_declared():
    found = [
        call
        for path in PACKAGE.rglob("*.py")
        for call in parsing_calls(ast.parse(path.read_text()), str(path.relative_to(PACKAGE)))
    ]
    assert sorted(place for place, _ in found) == sorted(place for places in UNTYPED.values() for place in places)
    raw = {place for place, is_raw in found if is_raw}
    assert raw == {"common/foreign.py parse_json", *(place for name in OWN for place in UNTYPED[name])}
