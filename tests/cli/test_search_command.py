"""`verl-trgrpo search index` as a user meets it; serving is tested with the server."""

import json
import subprocess
import sys

import pytest

from verl_trgrpo.cli.main import main


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
    assert code == 2 and "replace it with --force" in error


def test_a_missing_package_is_named_with_the_extra_to_install(corpus, tmp_path):
    # A module that raises what a missing one raises hides the installed one.
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "tantivy.py").write_text("raise ModuleNotFoundError('none', name='tantivy')")
    program = f"import sys; sys.path.insert(0, {str(tmp_path / 'hidden')!r}); from verl_trgrpo.cli.main import main"
    words = ["search", "index", "--corpus", str(corpus), "--out", str(tmp_path / "out")]
    result = subprocess.run(
        [sys.executable, "-c", f"{program}; sys.exit(main({words!r}))"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert 'error: tantivy is not installed; pip install "verl-trgrpo[search]"' in result.stderr
