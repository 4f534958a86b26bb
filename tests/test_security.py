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

# What runs text as code or as a shell command, or builds objects from a foreign file, called or handed on.
FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "runpy.run_path", "runpy.run_module", "code.InteractiveInterpreter",
    "importlib.util.spec_from_file_location", "importlib.machinery.SourceFileLoader",
    "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput",
    "pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads", "dill.load", "dill.loads",
    "marshal.load", "marshal.loads", "shelve.open", "joblib.load", "pandas.read_pickle", "yaml.load", "yaml.unsafe_load",
    "yaml.full_load", "yaml.load_all", "yaml.unsafe_load_all", "yaml.full_load_all",
    "tempfile.mktemp", "ssl._create_unverified_context",
}  # fmt: skip
# Names that getattr must not get.
_LAST = {name.rpartition(".")[2] for name in FORBIDDEN} - {"load", "loads", "open"}
# Arguments that must not have this value, or one that is not known here, whatever the call.
# torch.load is safe without one (torch >= 2.6).
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
    """What in a source text is forbidden, as ``line: what``."""
    tree = ast.parse(source)
    known = aliases(tree)
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    handed = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.NamedExpr)}
    handed |= {id(value) for node in called.values() for value in (*node.args, *(word.value for word in node.keywords))}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            first, _, rest = dotted(node).partition(".")
            name = ".".join(filter(None, (known.get(first, first), rest))).removeprefix("builtins.")
            if name in FORBIDDEN or name.startswith(("os.exec", "os.spawn", "os.posix_spawn")):
                found.append(f"{node.lineno}: {name}")
            words = called[id(node)].args[:1] if id(node) in called else []
            if name in RUNNERS and (
                id(node) in handed or any(isinstance(word, ast.Constant | ast.JoinedStr) for word in words)
            ):
                found.append(f"{node.lineno}: {name} of one string, or handed on")
        if not isinstance(node, ast.Call):
            continue
        words = [node.args[1].value for _ in "1" if len(node.args) > 1 and isinstance(node.args[1], ast.Constant)]
        if dotted(node.func) == "getattr" and words and words[0] in _LAST:
            found.append(f"{node.lineno}: getattr of {words[0]}")
        for word in node.keywords:
            value = getattr(word.value, "value", ...) if isinstance(word.value, ast.Constant) else ...
            if any(word.arg == key and value in (bad, ...) for key, bad in REFUSED):
                found.append(f"{node.lineno}: {word.arg}={'?' if value is ... else value}")
    return found


# The conditions of this package's own rules are Python expressions; tests/checks/test_tables.py shows that they are constants.
ALLOWED = {
    "verl_trgrpo/checks/tables.py": ["compile", "eval"],
    "verl_trgrpo/data/renderer.py": ["trust_remote_code=?"] * 2,  # what the user's own configuration says
    "verl_trgrpo/launch/driver.py": ["runpy.run_module"],  # veRL's trainer, by a constant name
}


def test_no_source_runs_text_or_builds_objects_from_foreign_files():
    planted = """import subprocess as s, builtins, runpy, yaml, os as o, importlib.util
from pickle import loads
eval('1')
loads(b'')
s.run(f'rm {x}')
f(shell=True)
builtins.eval(x)
e = eval
run = s.run
runpy.run_path(x)
o.execv(x, y)
compile(x, y, z)
yaml.load_all(x, Loader=yaml.Loader)
f(shell=x)
torch.load(x, weights_only=y)
importlib.util.spec_from_file_location(x, y)
getattr(o, 'system')
map(loads, x)"""
    assert len(SOURCES) > 150
    assert {int(found.partition(":")[0]) for found in dangers(planted)} == {*range(3, 19)}
    found = {str(path.relative_to(ROOT)): dangers(path.read_text()) for path in SOURCES}
    calls = {name: [call.partition(": ")[2] for call in calls] for name, calls in found.items() if calls}
    assert calls == ALLOWED


# Names that open or read a file, whatever module or object they belong to, and modules whose every reader or copier does.
READERS = {
    "open", "fdopen", "open_code", "FileIO", "read_text", "read_bytes", "getline", "getlines", "load", "safe_load", "load_file",
    "safe_open", "load_dataset", "from_file", "from_parquet", "from_json", "from_csv", "from_pretrained", "ParquetFile",
    "ParquetDataset", "OSFile", "memory_map", "memmap", "mmap", "fromfile", "loadtxt", "genfromtxt", "imread", "ZipFile",
    "TarFile", "GzipFile", "JsonDatasetReader", "hf_tokenizer", "hf_processor",
    "open_memmap", "load_model", "FileHandler", "RotatingFileHandler", "ConfigParser", "RawConfigParser", "iterparse",
}  # fmt: skip
# The same where the name alone says too little.
READING_CALLS = {
    "sqlite3.connect", "fileinput.input", "fileinput.FileInput", "xml.etree.ElementTree.parse", "xml.dom.minidom.parse",
    "xml.sax.parse", "linecache.getline", "tokenize.open", "logging.config.fileConfig", "netrc.netrc", "mailbox.mbox",
}  # fmt: skip
READING_MODULES = ("pandas.", "pyarrow.", "polars.", "shutil.")
# Where common/foreign.py is not the one who opens, and why that is safe.
LOOKED_AT, OPENED, OWN, WRITTEN = "looked at before", "opened before", "of this package or of the system", "to write to"
METRICS, TYPED = "MetricsLog and _Lines read through the door", "named by the user for his own training"
OPENINGS = {
    "checks/algorithm.py": {"load": OWN},
    "checks/construct/names.py": {"read_text": "veRL's own source, as installed"},
    "checks/machine.py": {"read()": "what its own child process said"},
    "common/files.py": {"open open open": f"{OPENED}, {WRITTEN}", "copymode": "the mode of a directory alone"},
    "common/foreign.py": {"GzipFile": "a type", "open": "the door", "fdopen": "the door", "load": OPENED},
    "common/options.py": {"open": OWN},
    "common/sandbox.py": {"open": OWN},
    "common/seccomp.py": {"read_text": OWN},
    "common/text.py": {"read_text": OWN},
    "curation/decontaminate.py": {"ParquetFile": OPENED},
    "data/renderer.py": {"from_pretrained from_pretrained hf_tokenizer hf_processor": LOOKED_AT},
    "data/rows.py": {"ParquetFile": OPENED},
    "data/sources.py": {"load_dataset": "a data set of the hub, by its name"},
    "data/verl_files.py": {"ParquetFile": OPENED, "JsonDatasetReader read()": LOOKED_AT},
    "evaluation/adapter.py": {"from_pretrained " * 3 + "from_pretrained": "what veRL's merger has just written"},
    "evaluation/checkpoint.py": {"copytree": LOOKED_AT},
    "evaluation/response_store.py": {"fdopen": "open_plain opens no other than a regular file"},
    "launch/log.py": {"read()": METRICS},
    "launch/memory_kills.py": {"read_text": "of the kernel, in /proc and /sys"},
    "launch/train.py": {"read() read()": METRICS},
    "recipes/minimal/train.py": {"from_pretrained from_pretrained read_table": TYPED},
    "retrieval/index.py": {"open": LOOKED_AT},
    "runs/checkpoints.py": {"ZipFile": OPENED},
    "runs/keys.py": {"read_text safe_load": OWN},
    "runs/readers.py": {"load read_text safe_load": OWN},
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
    found = [
        "read()"  # without a limit
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "read"
        if not node.args and not node.keywords
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in writers:
            first, _, rest = dotted(node).partition(".")
            name = ".".join(filter(None, (known.get(first, first), rest))) or getattr(node, "attr", "")
            last = name.rpartition(".")[2]
            if (
                last in READERS
                or name in READING_CALLS
                or (name.startswith(READING_MODULES) and last.startswith(("read_", "copy")))
            ):
                found.append(last)
    return sorted(found)


def test_every_foreign_file_passes_one_door():
    planted = "import gzip as g, pandas\nfrom shutil import copy2 as c\ng.open(x)\nPath(x).open()\nPath(x).open('w')\n"
    planted += "map(Path.read_text, x)\npandas.read_csv(x)\nc(x, y)\n(x / y).read_bytes()\nf(x)[0].open()"
    assert openings(planted) == ["copy2", "open", "open", "open", "read_bytes", "read_csv", "read_text"]
    more = [
        "import sqlite3, configparser, fileinput, logging, numpy as np, xml.etree.ElementTree as ET",
        "sqlite3.connect(x)",
    ]
    more += ["configparser.ConfigParser().read(x)", "fileinput.input(x)", "ET.parse(x)", "np.lib.format.open_memmap(x)"]
    more += ["load_model(x)", "logging.FileHandler(x)", "file.read()", "o = open"]
    assert len(openings("\n".join(more))) == len(more) - 1
    package = ROOT / "verl_trgrpo"
    files = [
        *package.rglob("*.py"),
        *(path for name in ("recipes", "data_prep") for path in (ROOT / name).rglob("*.py")),
    ]
    names = {path: path.relative_to(package if path.is_relative_to(package) else ROOT) for path in files}
    found = {str(names[path]): openings(path.read_text()) for path in files}
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


# The sub-packages that speak to a person; the others return what is said, and log.
SPEAKING = [
    path for path in SOURCES if path.parent.name in ("cli", "launch") or path.name == "__main__.py"
    or path.parts[-2:] == ("common", "options.py")
]  # fmt: skip
PRINTING = {"print", "write", "writelines", "display", "pprint", "print_exc", "set_postfix_str", "set_description_str"}


def unescaped(source: str) -> list[str]:
    """Calls in a source text that may print something else than a constant, without `show` or `for_terminal`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in PRINTING:
            first = node.args[0] if node.args else None
            escaped = isinstance(first, ast.Call) and dotted(first.func) == "for_terminal"
            if not escaped and not isinstance(first, ast.Constant):
                found.append(f"{node.lineno}: {ast.unparse(node.func)}")
        elif isinstance(node, ast.Name) and node.id == "print":  # handed to another function
            found.append(f"{node.lineno}: print")
        elif isinstance(node, ast.ImportFrom) and any(name.name in PRINTING for name in node.names):
            found.append(f"{node.lineno}: {node.module}")
    return found


def test_commands_and_the_launcher_print_by_one_function():
    assert len(SPEAKING) > 10
    assert {str(path): found for path in SPEAKING if (found := unescaped(path.read_text()))} == {}


def test_the_rule_of_printing_finds_what_it_should():
    for call in (
        "print(x)",
        "sys.stdout.write(x)",
        "print(*x)",
        "self._bar.write(f'{x}', file=y)",
        "a.b.c.writelines(x)",
        "map(print, x)",
        "sys.stderr.write(escape_controls(x))",
    ):
        assert unescaped(call), call
    for call in ("show(x)", "sys.stderr.write(for_terminal(x))", "bar.write('x')"):
        assert not unescaped(call), call
