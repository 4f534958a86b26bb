"""`verl-trgrpo search index` as a user meets it; serving is tested with the server."""

import json
import os
import subprocess
import sys

import pytest

from verl_trgrpo.cli.main import main
from verl_trgrpo.common.extras import install_command


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"id": "7", "contents": '"東京"\nTokyo is a capital.'}, {"id": "8", "contents": '"Oslo"\nOslo is, too.'}]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def run(capsys, *words):
    code = main(["search", *map(str, words)])
    return code, *capsys.readouterr()


def test_an_index_is_built_once(capsys, corpus, tmp_path):
    code, out, _ = run(capsys, "index", "--corpus", corpus, "--out", tmp_path / "out")
    assert code == 0
    assert "2 passages" in out
    code, _, error = run(capsys, "index", "--corpus", corpus, "--out", tmp_path / "out")
    assert code == 2 and "with --force" in error


@pytest.mark.parametrize(
    ("command", "module"), [("index", "tantivy"), ("serve", "tantivy"), ("serve", "starlette"), ("serve", "uvicorn")]
)
def test_a_missing_package_is_one_line_that_names_the_extra_to_install(capsys, corpus, tmp_path, command, module):
    run(capsys, "index", "--corpus", corpus, "--out", tmp_path / "out")
    # A module that raises what a missing one raises hides the installed one.
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / f"{module}.py").write_text(f"raise ModuleNotFoundError('none', name={module!r})")
    words = {
        "index": ["--corpus", corpus, "--out", tmp_path / "other"],
        "serve": ["--index", tmp_path / "out", "--port", "0"],
    }
    result = subprocess.run(
        [sys.executable, "-m", "verl_trgrpo", "search", command, *map(str, words[command])],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "hidden")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert result.returncode == 1
    assert result.stderr == f"error: the module {module} is not installed; {install_command('search')}\n"
    assert not result.stdout and not (tmp_path / "other").exists()
