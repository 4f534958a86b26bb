"""What the tests of all builders need: the command lines under test, and the files that they write."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
DATA_PREP = ROOT / "data_prep"

# Seconds. They end a test that hangs, on any machine; nothing is expected to take that long.
HANGS = 600


def command_of(name, *words):
    return [sys.executable, str(DATA_PREP / f"{name}.py"), *map(str, words)]


def run_script(name, environment, *words, cwd=None):
    """The command line as a process of its own, run to its end."""
    return subprocess.run(
        command_of(name, *words),
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS,
    )


def environment_for(directory):
    """A subprocess that imports this tree, reaches no network and keeps its caches to itself."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path, "HF_HOME": str(directory / "cache"), "HF_HUB_OFFLINE": "1"}


def rows_of(path):
    return pq.read_table(path).to_pylist()


def manifest_of(out):
    return json.loads((out / "manifest.json").read_text(encoding="utf-8"))


def files_in(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def data_in(directory):
    """All that must not depend on where the files are: everything but the command."""
    return files_in(directory) | {"manifest.json": manifest_of(directory) | {"command": ""}}


def staging_directories(out):
    return list(out.parent.glob(f".{out.name}.building"))


def repeat_recorded_command(out, directory, environment):
    """Remove the files in `out` and run the command of its manifest, word for word, in `directory`."""
    command = manifest_of(out)["command"]
    for path in out.iterdir():
        path.unlink()
    (directory / "data_prep").symlink_to(DATA_PREP)
    path = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    subprocess.run(
        command,
        shell=True,
        cwd=directory,
        env=environment | {"PATH": path},
        check=True,
        capture_output=True,
        timeout=HANGS,
    )


def stop_amid_work(command, environment, out, number):
    """Start a build, send it the signal `number` amid its work; return its exit code and what it wrote to stderr then.

    Amid its work is: the progress bar shows a speed. Its first line, "?it/s", would be too early, for what is imported
    after it may swallow a Ctrl-C; and a directory for the new files is there.
    """
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = threading.Timer(HANGS, process.kill)  # ends what is waited for: the loop then fails
        deadline.start()
        shown = ""
        while not re.search(r"\dit/s", shown):
            read = process.stderr.read(1)
            assert read, f"ended before the work began: {shown}"
            shown += read
        assert staging_directories(out), "the build must be amid its work"
        process.send_signal(number)
        _, error = process.communicate()
        deadline.cancel()
    return process.returncode, error
