"""A directory made by a stranger: no command that reads one leaves it, runs its code, or shows what is not in it.

Each case writes a directory with something hostile and runs a command on it, beside a home directory that must stay as it is and
with a secret in the environment that must not appear anywhere.
"""

import json
import logging
import os
import resource
import shutil
import signal
import socket
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from uvicorn import Server

from tests.compare.files import write_comparison
from tests.conftest import composed
from tests.data.checked_files import clean, write
from tests.evaluation.test_checkpoint import make_run
from tests.launch.launching import save_checkpoint
from tests.retrieval.servers import PASSAGES, write_corpus
from tests.tasks.math.deepscaler_files import write_all
from tests.tasks.search_qa.files import write_collection
from verl_trgrpo.checks.data_files import data_findings
from verl_trgrpo.checks.files import missing_files, model_findings
from verl_trgrpo.checks.resume import resume_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.cli.main import commands, main
from verl_trgrpo.common.files import lock, open_plain
from verl_trgrpo.common.findings import Level, raise_invalid
from verl_trgrpo.common.options import exit_code
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.evaluation import generation
from verl_trgrpo.launch.train import launch
from verl_trgrpo.retrieval.index import IndexOptions, build_index
from verl_trgrpo.runs.records import write_record
from verl_trgrpo.runs.run_directory import write_config

SECRET = "hf_SECRET"
KK = ["data", "build", "kk", "--people", "3", "--train", "4", "--test", "2"]
ESCAPE = "\x1b]52;c;ZXZpbA==\x07\x1b[2J"
# Ways to write a variable of the environment, or to put a resolver together from pieces.
RESOLVERS = {
    "adv_estimator": "${oc.env:STRANGERS_WISH}",
    "loss_agg_mode": "${oc.select:nothing,${oc.env:STRANGERS_WISH}}",
    "clip_ratio_low": "${oc.${name}:STRANGERS_WISH}",
    "clip_ratio_high": '${oc.decode:"${dollar}{oc.env:STRANGERS_WISH}"}',
    "use_kl_loss": "${oc.create:${text}}",
    "kl_loss_coef": r"\${oc.env:STRANGERS_WISH}",
    "entropy_coeff": "${ oc.env : STRANGERS_WISH }",
}
OWN_CODE = {"auto_map": {"AutoConfig": "own.Config", "AutoTokenizer": ["own.Tokenizer", None]}, "model_type": "own"}


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def linked(path, home):
    """A file that is a link to one of the home directory."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(home / "diary.txt")


def data_set(place, home):
    """A data set of an older version, which is built again, whose manifest names files elsewhere."""
    assert main([*KK, "--out", str(place)]) == 0
    facts = {"rows": 1, "sha256": "0"}
    names = [
        "../home",
        "../home/diary.txt",
        str(home / "diary.txt"),
        "..",
        ".",
        "a/../../home/x.parquet",
        "notes.txt",
        "sub",
    ]
    files = json.loads((place / "manifest.json").read_text())["files"]
    edit(place / "manifest.json", package_version="0.0.1", files=files | dict.fromkeys(names, facts))
    (place / "notes.txt").write_text("mine")
    (place / "sub").mkdir()
    return [*KK, "--out", place]


def data_lock(place, home):
    linked(place.with_name(f".{place.name}.lock"), home)
    return [*KK, "--out", place]


def data_leftovers(place, home):
    """Links in place of what a killed build leaves beside its directory."""
    assert main([*KK, "--out", str(place)]) == 0
    place.with_name(f".{place.name}.building").symlink_to(home)
    place.with_name(f".{place.name}.old").symlink_to(home)
    return [*KK, "--seed", "1", "--force", "--out", place]


def index(place, home):
    place.mkdir()
    build_index(IndexOptions(write_corpus(place / "corpus", PASSAGES), place / "idx"))
    (place / "home").mkdir()
    (place / "home" / "evil.pth").write_text("import os")
    manifest = json.loads((place / "idx" / "manifest.json").read_text())
    files = manifest["files"] | {"../../home/evil.pth": 9}
    edit(place / "idx" / "manifest.json", files=files)
    return ["search", "serve", "--index", place / "idx", "--port", "0"]


def run_with_resolvers(place):
    make_run(place)
    pieces = {"name": "env", "dollar": "$", "text": "{a: '${oc.env:STRANGERS_WISH}'}"}
    lines = [f"{key}: {json.dumps(value)}" for key, value in {**pieces, **RESOLVERS}.items()]
    actor = "\n".join(f"    {key}: {json.dumps(value)}" for key, value in RESOLVERS.items())
    model = "  model: {path: '${oc.env:STRANGERS_WISH}'}"
    top = "\n".join(
        [*lines, "algorithm: {adv_estimator: '${oc.env:STRANGERS_WISH}'}", "data: {seed: '${adv_estimator}'}"]
    )
    (place / "config.yaml").write_text(f"{top}\nactor_rollout_ref:\n{model}\n  actor:\n{actor}\n")
    (place / "metrics-2.jsonl").symlink_to("/dev/zero")
    os.mkfifo(place / "metrics-3.jsonl")
    return place


def report(place, home):
    runs = [run_with_resolvers(place / f"r{number}{ESCAPE}") for number in (1, 2)]
    return ["report", *runs, "--out", place / "page.html"]


def yaml_bomb(place, home):
    make_run(place)
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (place / "config.yaml").write_text("\n".join(["a0: &a0 [x]", *levels, ""]))
    return ["report", place, "--out", place / "page.html"]


def card(place, home):
    return ["export", run_with_resolvers(place), "--out", place / "out"]


def linked_weights(place, home):
    linked(make_run(place) / "global_step_10" / "vocab.txt", home)
    return ["export", place, "--out", place / "out"]


def linked_merge(place, home):
    """A sharded checkpoint whose merged model would replace a directory elsewhere."""
    actor = place / "global_step_5" / "actor"
    (actor / "huggingface").mkdir(parents=True)
    (actor / "huggingface" / "config.json").write_text("{}")
    (actor / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 1}')
    (actor.parent / "merged_hf").symlink_to(home)
    return ["export", place / "global_step_5", "--out", place / "out"]


def own_code(place, command):
    """A run whose model brings Python code and whose own configuration trusts it."""
    model = shutil.copytree(CHECKPOINT, place / "global_step_5")
    for name in ("config.json", "tokenizer_config.json"):
        edit(model / name, **OWN_CODE)
    (model / "own.py").write_text(
        "open('ran', 'w')\nfrom transformers import PretrainedConfig as Config\nTokenizer = None\n"
    )
    (place / "config.yaml").write_text("actor_rollout_ref: {model: {trust_remote_code: true}}\n")
    rows = write(place / "test.parquet", clean())
    return [*command, "--model", model, "--data", rows, "--out", place / "out"]


def evaluation(place, home):
    return own_code(place, ["eval"])


def linked_responses(place, home):
    linked(place / "out" / "test.jsonl", home)
    return own_code(place, ["eval"])


def linked_evaluation_lock(place, home):
    linked(place / "out" / ".lock", home)
    return own_code(place, ["eval"])


def health(place, home):
    place.mkdir()
    data = {f"actor/{ESCAPE}": 1.0, "actor/grad_norm": None}
    lines = [json.dumps({"step": step, "data": data}) + "\n" for step in (1, 2)]
    (place / "metrics-1.jsonl").write_text("".join(lines))
    os.mkfifo(place / "metrics-2.jsonl")
    return ["health", place]


def deep(place, home):
    place.mkdir()
    (place / "deep.jsonl").write_text('{"prompt": "]]", "x": ' + "[" * 20_000 + "]" * 20_000 + "}\n")
    return ["data", "check", "--train", place / "deep.jsonl"]


def endless_template(place, home):
    shutil.copytree(CHECKPOINT, place / "model")
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    (place / "model" / "chat_template.jinja").write_text("{% if messages|length > 0 %}" + loops + "{% endif %}")
    rows = write(place / "train.parquet", clean())
    return ["data", "check", "--train", rows, "--tokenizer", place / "model"]


def reaching_template(place, home):
    shutil.copytree(CHECKPOINT, place / "model")
    (place / "model" / "chat_template.jinja").write_text(
        "{{ cycler.__init__.__globals__.os.environ }}{{ raise_exception('" + ESCAPE + "') }}"
    )
    rows = write(place / "train.parquet", clean())
    return ["data", "check", "--train", rows, "--tokenizer", place / "model"]


# By case: the exit code, and what the command says.
CASES = {
    data_set: (0, "4 rows"),
    data_lock: (2, "is a link"),
    data_leftovers: (2, "move this"),
    index: (2, "not a file of an index"),
    report: (0, "page.html"),
    yaml_bomb: (0, "page.html"),
    card: (0, "model"),
    linked_weights: (2, "vocab.txt is a link"),
    linked_merge: (2, "merged_hf is a link"),
    evaluation: (2, "contains custom code"),
    linked_responses: (2, "test.jsonl is a link"),
    linked_evaluation_lock: (2, ".lock is a link"),
    health: (1, "active"),
    deep: (1, "nested more than"),
    endless_template: (2, "does not end"),
    reaching_template: (1, "refuses the prompt"),
}


def snapshot(directory):
    return {
        path: (path.lstat().st_mode, path.is_file() and path.read_bytes())
        for path in [directory, *directory.rglob("*")]
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_directory_made_by_a_stranger(tmp_path, monkeypatch, capfd, case):
    code, says = CASES[case]
    home, place = tmp_path / "home", tmp_path / "place"
    home.mkdir()
    (home / "diary.txt").write_text(f"{SECRET} of the diary")
    (home / "x.parquet").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRANGERS_WISH", SECRET)
    monkeypatch.setattr("verl_trgrpo.data.prompts._TEMPLATE_SECONDS", 1.0)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    words = [str(word) for word in case(place, home)]
    before = snapshot(home)
    capfd.readouterr()
    assert main(words) == code
    said = "".join(capfd.readouterr())
    assert says in said and "Traceback" not in said and "\x1b" not in said and SECRET not in said
    assert snapshot(home) == before and not (tmp_path / "ran").exists()
    written = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
    if case is data_set:
        assert (place / "notes.txt").read_text() == "mine" and (place / "sub").is_dir()


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to, lambda path, _: os.mkfifo(path)])
def test_no_lock_or_log_is_written_through_a_link(tmp_path, make):
    (tmp_path / "diary.txt").write_text("precious")
    make(tmp_path / "run.lock", tmp_path / "diary.txt")
    for attempt in (lambda: lock(tmp_path / "run.lock", "").__enter__(), lambda: open_plain(tmp_path / "run.lock")):
        with pytest.raises(ValueError, match="is a link or no regular file"):
            attempt()
    assert (tmp_path / "diary.txt").read_text() == "precious"


# Every file of every directory that a command reads, replaced by something else


def plain_data(place, command, *source):
    out = ["data", "build", *command.split(), "--out", place / "out", *source]
    assert main([str(word) for word in out]) == 0
    return out


def read_kk(place):
    return plain_data(place, "kk --people 3 --train 4 --test 2")


def read_reasoning_gym(place):
    return plain_data(place, "reasoning-gym --task chain_sum --train 4 --test 2")


def read_deepscaler(place):
    return [*plain_data(place, "deepscaler", "--source", write_all(place / "source")), "--force"]


def read_search_qa(place):
    source = write_collection(place / "source", 2, {"nq": ("train", "test")})
    return [*plain_data(place, "search-qa --train-sets nq --test-sets nq", "--source", source), "--force"]


def read_check(place):
    shutil.copytree(CHECKPOINT, place / "model")
    files = ["--train", write(place / "train.parquet", clean()), "--test", write(place / "test.jsonl", clean("test"))]
    return ["data", "check", *files, "--tokenizer", place / "model"]


def read_decontaminate(place):
    train, test = write(place / "train.parquet", clean()), write(place / "test.json", clean("test"))
    return ["data", "decontaminate", train, "--against", test, "--out", place / "clean.parquet", "--force"]


def read_index(place):
    build_index(IndexOptions(write_corpus(place / "corpus.jsonl", PASSAGES), place / "idx"))
    return ["search", "index", "--corpus", place / "corpus.jsonl", "--out", place / "idx", "--force"]


def read_serve(place):
    read_index(place)
    return ["search", "serve", "--index", place / "idx", "--port", "0"]


def read_eval(place):
    shutil.copytree(CHECKPOINT, place / "global_step_5")
    (place / "config.yaml").write_text("data: {seed: 1}\n")
    rows = write(place / "test.parquet", clean(count=2))
    words = ["eval", "--model", place / "global_step_5", "--data", rows, "--out", place / "out"]
    (place / "out").mkdir()
    for name in ("arguments.json", "test.jsonl", "report.json"):
        (place / "out" / name).write_text("{}")
    return words


def read_export(place):
    return ["export", make_run(place / "run"), "--out", place / "out"]


def read_health(place):
    return ["health", make_run(place / "run")]


def read_report(place):
    run = make_run(place / "run")
    shutil.rmtree(run / "global_step_5")
    shutil.rmtree(run / "global_step_10")
    dump = {"input": "Who?", "output": "A", "gts": "A", "score": 1.0}
    (run / "validation").mkdir()
    (run / "validation" / "1.jsonl").write_text(json.dumps(dump) + "\n")
    (run / "options.json").write_text("{}")
    return ["report", run, write_comparison(place / "study", {"grpo": 0.1}, seeds=1), "--out", place / "page.html"]


def read_compare(place):
    return ["compare", write_comparison(place / "study", {"grpo": 0.1, "tr_grpo": 0.2}, seeds=1)]


def read_train(place):
    """Check and start a run that resumes, up to the process that trains."""
    shutil.copytree(CHECKPOINT, place / "model")
    rows = write(place / "train.parquet", clean())
    save_checkpoint(place / "run", 3)
    overrides = [f"data.train_files={rows}", f"data.val_files={rows}", f"actor_rollout_ref.model.path={place / 'model'}",
                 f"trainer.default_local_dir={place / 'run'}", "platform=cpu"]  # fmt: skip
    run = composed(overrides, "kk_quickstart")
    write_config(run.config, place / "run")
    write_record(place / "run", {"seed": 0})

    def start(*_):
        raise RuntimeError("the process that trains would start")

    def program():
        view = RunView(run)
        for check in CHECKS:
            raise_invalid([each.message for each in check(view) if each.level is Level.ERROR])
        launch(run, 10, start=start)
        return 0

    return partial(exit_code, program)


CHECKS = (missing_files, data_findings, resume_findings, model_findings)
AS_TRAIN = "reads what train reads, by the same checks"
# By command: what makes its directory and returns its words, or why it has none.
READS = {
    "data build kk": read_kk, "data build deepscaler": read_deepscaler, "data build search-qa": read_search_qa,
    "data build reasoning-gym": read_reasoning_gym, "data check": read_check, "data decontaminate": read_decontaminate,
    "search index": read_index, "search serve": read_serve, "eval": read_eval,
    "export": read_export, "health": read_health, "report": read_report, "compare": read_compare, "train": read_train,
    "validate": AS_TRAIN, "preview": AS_TRAIN, "quickstart": "reads what data build and train read, which it wrote",
    "doctor": "reads nothing of others",
}  # fmt: skip
INSTEAD = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link to a directory": lambda path: path.symlink_to("/"),
    "directory": Path.mkdir,
    "empty": Path.touch,
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 8),
    "list": lambda path: path.write_text("[1, [2]]\n"),
}


@contextmanager
def bounded():
    """Raise where reading does not end or takes all memory."""

    def stop(*_):
        raise AssertionError("it does not end")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 30), before[1]))
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


# Their cases take seconds each: here each file has one kind that is no file, tests/cluster/test_strangers.py has all kinds.
SLOW = ("search index", "data check", "eval", "export", "report", "compare", "train")


def try_instead(command, tmp_path, monkeypatch, capfd, kinds=tuple(INSTEAD), only=()):
    """Replace files of a command's directory, all or `only` these, by all `kinds`, or by one in turn, and run it.

    Returns:
        what went wrong.
    """
    place, whole = tmp_path / "place", tmp_path / "whole"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(generation, "make_responses", refused)
    monkeypatch.setattr(Server, "run", lambda *_: None)
    monkeypatch.setattr(logging, "raiseExceptions", False)  # of a handler whose stream an earlier test has closed
    place.mkdir()
    program = READS[command](place)
    if not callable(program):
        program = partial(main, [str(word) for word in program])
    shutil.copytree(place, whole)
    files = only or sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    wrong = []
    for number, file in enumerate(files):
        for name in kinds or [[*INSTEAD][number % 4]]:
            shutil.rmtree(place)
            shutil.copytree(whole, place)
            (place / file).unlink()
            INSTEAD[name](place / file)
            capfd.readouterr()
            try:
                with bounded():
                    code = program()
            except BaseException as error:
                code = repr(error)
            said = capfd.readouterr().err
            if code not in (0, 1, 2) or "Traceback" in said or (code == 2 and said.count("error: ") != 1):
                wrong.append((str(file), name, code, said[-300:]))
    return wrong if files else ["no file"]


@pytest.mark.parametrize("command", [name for name, make in READS.items() if callable(make)])
def test_every_file_of_a_directory_may_be_something_else(tmp_path, monkeypatch, capfd, command):
    kinds = () if command in SLOW else tuple(INSTEAD)
    assert try_instead(command, tmp_path, monkeypatch, capfd, kinds) == []


def big(path, size=20 << 30):
    path.touch()
    os.truncate(path, size)


def many_lines(path):
    path.write_bytes(b"x\n" * 100_000)


# By command: the file of lines that it reads, which may be of any size and have any number of damaged lines.
LINES = {"health": "run/metrics-1.jsonl", "eval": "out/test.jsonl"}


@pytest.mark.parametrize("make", [big, many_lines])
@pytest.mark.parametrize("command", LINES)
def test_a_file_of_lines_may_be_of_any_size(tmp_path, monkeypatch, capfd, command, make):
    monkeypatch.setitem(INSTEAD, make.__name__, make)
    assert try_instead(command, tmp_path, monkeypatch, capfd, [make.__name__], [Path(LINES[command])]) == []


def with_link(place, directory):
    """Move a directory elsewhere, with something private in its files, and leave a link."""
    elsewhere = place.parent / "elsewhere"
    (place / directory).rename(elsewhere)
    (place / directory).symlink_to(elsewhere)
    for file in elsewhere.rglob("*.json*"):
        file.write_text(
            file.read_text().replace("Who?", SECRET) if file.suffix == ".jsonl" else json.dumps({"a": SECRET})
        )


@pytest.mark.parametrize("command", ["export", "report"])
def test_a_directory_of_a_run_that_is_a_link_is_not_read(tmp_path, monkeypatch, capfd, caplog, command):
    """Every directory below the one that is named, in turn; that one itself may be a link."""
    tried = 0
    made = tmp_path / "made"
    made.mkdir()
    words = [str(word) for word in READS[command](made)]
    directories = [path.relative_to(made) for path in made.rglob("*") if path.is_dir()]
    for number, directory in enumerate(directories):
        if str(made / directory) in words or made / directory in {made / "out"}:
            continue
        place = tmp_path / str(number) / "place"
        shutil.copytree(made, place)
        with_link(place, directory)
        caplog.clear()
        code = main([word.replace(str(made), str(place)) for word in words])
        said = caplog.text + capfd.readouterr().err
        # Of several checkpoints of a run the latest is exported, and no other one is looked at.
        latest = max(
            (path.name for path in (made / "run").glob("global_step_*")), default="", key=lambda name: (len(name), name)
        )
        assert f"{directory} is a link" in said or not (command == "report" or latest in directory.parts), (
            directory,
            said,
        )
        assert code in (0, 2) and "Traceback" not in said
        written = [*place.glob("page.html"), *place.glob("out/**/*")]
        assert not [path for path in written if path.is_file() and SECRET.encode() in path.read_bytes()], directory
        tried += 1
    assert tried


OUTS = [[*KK, "--out"], ["report", "run", "--out"], ["export", "run", "--out"]]


@pytest.mark.parametrize("kind", ["pipe", "socket", "circle"])
@pytest.mark.parametrize("words", OUTS, ids=lambda words: words[0])
def test_what_is_no_file_is_not_replaced_by_out(tmp_path, monkeypatch, capfd, words, kind):
    """Never a device: a test that is run as root would rename it."""
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "run")
    out = tmp_path / "out"
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "socket":
            server.bind("out")
        elif kind == "pipe":
            os.mkfifo(out)
        else:
            out.symlink_to("out")
        before = out.lstat()
        code, said = main([*words, "out"]), capfd.readouterr().err
        if kind != "circle" or words[0] != "report":  # which is replaced as any link by a file
            assert code == 2 and "; " in said and "Traceback" not in said
            assert (out.lstat().st_ino, out.lstat().st_mode) == (before.st_ino, before.st_mode)


def refused(*_):
    raise RuntimeError("no engine here")


def test_every_command_has_its_directory():
    assert READS.keys() == commands().keys()
