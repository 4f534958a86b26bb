"""What SECURITY.md promises, where it can be read off the source or tried out."""

import ast
import os
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for name in ("verl_trgrpo", "hydra_plugins", "data_prep", "benchmarks", "recipes", "docs")
    for path in (ROOT / name).rglob("*.py")
)

# Calls that run text as code or as a shell command, or build objects from a foreign file.
FORBIDDEN = {
    "eval", "exec", "__import__", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput",
    "pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads", "dill.load", "dill.loads",
    "marshal.load", "marshal.loads", "shelve.open", "joblib.load", "pandas.read_pickle", "yaml.load", "yaml.unsafe_load",
    "yaml.full_load", "tempfile.mktemp", "ssl._create_unverified_context",
}  # fmt: skip
# Arguments that must not have this value, whatever the call. torch.load is safe without one (torch >= 2.6).
REFUSED = {
    ("shell", True), ("trust_remote_code", True), ("allow_pickle", True), ("verify", False), ("weights_only", False),
}  # fmt: skip
# They take a command as a list, and as one string, which is easily put together from foreign parts.
RUNNERS = {f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")}


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of a name or an attribute, empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        parent = dotted(node.value)
        return f"{parent}.{node.attr}" if parent else ""
    return ""


def aliases(tree: ast.AST) -> dict[str, str]:
    """What imported names stand for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.asname: name.name for name in node.names if name.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    return found


def dangers(source: str) -> list[str]:
    """Calls in a source text that are forbidden, as ``line: what``."""
    tree = ast.parse(source)
    known = aliases(tree)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        first, _, rest = dotted(node.func).partition(".")
        name = ".".join(filter(None, (known.get(first, first), rest)))
        given = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
        if name in FORBIDDEN:
            found.append(f"{node.lineno}: {name}")
        if name in RUNNERS and node.args and isinstance(node.args[0], ast.Constant | ast.JoinedStr):
            found.append(f"{node.lineno}: {name} of one string")
        found += [f"{node.lineno}: {key}={value}" for key, value in given.items() if (key, value) in REFUSED]
    return found


# The conditions of this package's own rules are Python expressions; tests/checks/test_tables.py shows that they are constants.
ALLOWED = {"verl_trgrpo/checks/tables.py": ["eval"]}


def test_no_source_runs_text_or_builds_objects_from_foreign_files():
    planted = "import subprocess as s\nfrom pickle import loads\neval('1')\nloads(b'')\ns.run(f'rm {x}')\nf(shell=True)"
    assert len(SOURCES) > 150 and len(dangers(planted)) == 4
    found = {str(path.relative_to(ROOT)): dangers(path.read_text()) for path in SOURCES}
    calls = {name: [call.partition(": ")[2] for call in calls] for name, calls in found.items() if calls}
    assert calls == ALLOWED


# Names that open or read a file, whatever module or object they belong to, and modules whose every reader or copier does.
READERS = {
    "open", "fdopen", "open_code", "FileIO", "read_text", "read_bytes", "getline", "getlines", "load", "safe_load", "load_file",
    "safe_open", "load_dataset", "from_file", "from_parquet", "from_json", "from_csv", "from_pretrained", "ParquetFile",
    "ParquetDataset", "OSFile", "memory_map", "memmap", "mmap", "fromfile", "loadtxt", "genfromtxt", "imread", "ZipFile",
    "TarFile", "GzipFile", "JsonDatasetReader", "hf_tokenizer", "hf_processor",
}  # fmt: skip
READING_MODULES = ("pandas.", "pyarrow.", "polars.", "shutil.")
# Where common/foreign.py is not the one who opens, and why that is safe.
LOOKED_AT, OPENED, OWN, WRITTEN = "looked at before", "opened before", "of this package or of the system", "to write to"
OPENINGS = {
    "analysis/rollouts.py": {"from_pretrained": LOOKED_AT},
    "checks/algorithm.py": {"load": OWN},
    "checks/unread.py": {"read_text safe_load": OWN},
    "common/files.py": {"open open": f"{OPENED}, {WRITTEN}", "copymode": "the mode of a directory alone"},
    "common/foreign.py": {"GzipFile": "a type", "open": "the door", "fdopen": "the door", "load": OPENED},
    "common/options.py": {"open": OWN},
    "common/sandbox.py": {"open": OWN},
    "common/seccomp.py": {"read_text": OWN},
    "common/text.py": {"read_text": OWN},
    "data/renderer.py": {"from_pretrained hf_tokenizer hf_processor": LOOKED_AT},
    "data/rows.py": {"ParquetFile": OPENED},
    "data/sources.py": {"load_dataset": "a data set of the hub, by its name", "from_file": LOOKED_AT},
    "data/verl_files.py": {"ParquetFile": OPENED, "JsonDatasetReader": LOOKED_AT},
    "decontaminate.py": {"ParquetFile": OPENED},
    "evaluation/checkpoint.py": {"copytree": LOOKED_AT},
    "evaluation/response_store.py": {"fdopen": "open_plain opens no other than a regular file"},
    "retrieval/index.py": {"open": LOOKED_AT},
    "runs/checkpoints.py": {"ZipFile": OPENED},
    "runs/run_directory.py": {"load": OPENED},
    "runs/weights.py": {"load safe_open": LOOKED_AT},
}


def openings(source: str) -> list[str]:
    """Names in a source text that open or read a file, called or handed on; calls that say that they write are left out."""
    tree = ast.parse(source)
    known, writing = aliases(tree), {"w", "wb", "a", "ab", "x", "xb"}
    writers = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for value in (*node.args, *(word.value for word in node.keywords))
        if isinstance(value, ast.Constant) and value.value in writing
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in writers:
            first, _, rest = dotted(node).partition(".")
            name = ".".join(filter(None, (known.get(first, first), rest))) or getattr(node, "attr", "")
            last = name.rpartition(".")[2]
            if last in READERS or (name.startswith(READING_MODULES) and last.startswith(("read_", "copy"))):
                found.append(last)
    return sorted(found)


def test_every_foreign_file_passes_one_door():
    planted = "import gzip as g, pandas\nfrom shutil import copy2 as c\ng.open(x)\nPath(x).open()\nPath(x).open('w')\n"
    planted += "map(Path.read_text, x)\npandas.read_csv(x)\nc(x, y)\n(x / y).read_bytes()\nf(x)[0].open()"
    assert openings(planted) == ["copy2", "open", "open", "open", "read_bytes", "read_csv", "read_text"]
    package = ROOT / "verl_trgrpo"
    found = {str(path.relative_to(package)): openings(path.read_text()) for path in package.rglob("*.py")}
    expected = {file: sorted(" ".join(reasons).split()) for file, reasons in OPENINGS.items()}
    assert {file: names for file, names in found.items() if names} == expected


def test_no_configuration_trusts_code_of_a_model():
    def values(node):
        if isinstance(node, dict):
            for key, value in node.items():
                yield (key, value)
                yield from values(value)

    files = [*(ROOT / "verl_trgrpo").rglob("*.yaml"), *(ROOT / "recipes").rglob("*.yaml")]
    assert len(files) > 10
    for file in files:
        assert ("trust_remote_code", True) not in list(values(yaml.safe_load(file.read_text()))), file


def test_the_composed_configuration_does_not_either():
    from verl_trgrpo.runs.compose import compose

    config = compose().config
    assert config.actor_rollout_ref.model.trust_remote_code is False
    assert config.data.trust_remote_code is False


HOSTILE = ["trainer.project_name=$(touch ran)", "x=`touch ran`", "a=b;touch ran", "c=d && touch ran", "e=* f", "g='\"h"]


def test_overrides_reach_the_launcher_of_a_recipe_word_for_word(tmp_path):
    """recipes/run.sh hands arguments on; a shell that looked at them again would run them."""
    command = tmp_path / "verl-trgrpo"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    command.chmod(0o755)
    recipe = "knights_and_knaves/qwen2.5-3b-instruct"
    result = subprocess.run(
        ["bash", str(ROOT / "recipes" / "run.sh"), recipe, "--dry-run", *HOSTILE],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "NNODES": "1"},
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-len(HOSTILE) :] == HOSTILE
    assert not list(tmp_path.rglob("ran")) and not (ROOT / "ran").exists()


def test_the_training_process_gets_its_arguments_as_a_list(tmp_path, monkeypatch, fake_driver):
    from verl_trgrpo.launch.process import TrainingProcess

    fake_driver('printf "%s\\n" "$@"')
    monkeypatch.chdir(tmp_path)
    with TrainingProcess(HOSTILE, dict(os.environ), tmp_path / "log") as process:
        assert process.wait(lambda: None, seconds=0.1) == 0
    assert (tmp_path / "log").read_text().splitlines() == ["-m", "verl.trainer.main_ppo", *HOSTILE]
    assert not (tmp_path / "ran").exists()
