"""Every commit that a record names is in the history, or its page says that it is not."""

import io
import json
import lzma
import subprocess
import tarfile

import pytest

from tests.scripts import ROOT

RECORDS = sorted(path for path in (ROOT / "studies").glob("*/records/*") if path.is_file())
# Records of a commit that is not in the history; docs/results/chains_map.md says what they are.
LOST = {"chains.jsonl": {"93b4dc8"}}


def commits_in(value):
    """All values of keys named "commit"."""
    if isinstance(value, dict):
        for key, own in value.items():
            if key == "commit" and isinstance(own, str):
                yield own
            yield from commits_in(own)
    elif isinstance(value, list):
        for own in value:
            yield from commits_in(own)


def contents(path):
    """The JSON documents of a file of records."""
    data = path.read_bytes()
    if path.name.endswith(".tar.xz"):
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            names = [one for one in archive.getmembers() if one.name.endswith("run.json")]
            yield from (json.loads(archive.extractfile(one).read()) for one in names)
        return
    text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
    if ".jsonl" in path.name:
        yield from map(json.loads, text.splitlines())
    else:
        yield json.loads(text)


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)


@pytest.fixture(scope="module")
def history():
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs the whole history of a clone")
    return git("rev-list", "HEAD").stdout.split()


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_commits_of_records_are_in_the_history(path, history):
    found = {commit for content in contents(path) for commit in commits_in(content)}
    assert found, "a record names its commit"
    missing = {commit[:7] for commit in found if not any(own.startswith(commit) for own in history)}
    assert missing == LOST.get(path.name, set())


def test_the_page_says_which_commit_is_not_in_the_history():
    page = " ".join((ROOT / "docs" / "results" / "chains_map.md").read_text().split())
    assert all(f"{commit}, which is not in the history" in page for own in LOST.values() for commit in own)
