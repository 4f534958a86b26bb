"""A directory made by a stranger: no command that reads one leaves it, runs its code, or shows what is not in it.

Each case writes a directory with something hostile and runs a command on it, beside a home directory that must stay as it is and
with a secret in the environment that must not appear anywhere.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.data.checked_files import clean, write
from tests.evaluation.test_checkpoint import make_run
from tests.retrieval.servers import PASSAGES, write_corpus
from verl_trgrpo.cli.main import main
from verl_trgrpo.common.files import lock, open_plain
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.retrieval.index import IndexOptions, build_index

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


def analyze(place, home):
    return own_code(place, ["analyze", "--only-tokens"])


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
    (place / "metrics-1.jsonl").write_text(json.dumps({"step": 1, "data": data}) + "\n")
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
    data_leftovers: (0, "4 rows"),
    index: (2, "no file of an index"),
    report: (0, "page.html"),
    yaml_bomb: (0, "page.html"),
    card: (0, "model"),
    linked_weights: (2, "vocab.txt is a link"),
    linked_merge: (2, "merged_hf is a link"),
    analyze: (2, "contains custom code"),
    evaluation: (2, "contains custom code"),
    linked_responses: (2, "test.jsonl is a link"),
    linked_evaluation_lock: (2, ".lock is a link"),
    health: (1, "stands"),
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
