"""The notebook runs from top to bottom, on the tiny model that ships."""

import ast
import copy

import pytest

from tests.cluster.training import LIMIT, ROOT

nbformat = pytest.importorskip("nbformat", reason='nbclient is not installed: pip install -e ".[dev]"')
nbclient = pytest.importorskip("nbclient", reason='nbclient is not installed: pip install -e ".[dev]"')


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(ROOT / "examples/token_weights.ipynb", as_version=4)


def test_it_is_committed_with_outputs_that_name_no_place_of_a_machine(notebook):
    nbformat.validate(notebook)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert all(output.get("name") != "stderr" for output in outputs)
    assert not any(place in str(outputs) for place in ("site-packages", str(ROOT), "/home/"))


def test_it_shows_tokens_and_trains_with_three_shapings(notebook, tmp_path):
    short = copy.deepcopy(notebook)  # ten steps of three trainings take minutes
    [training] = [cell for cell in short.cells if "steps=10" in cell.source]
    training.source = training.source.replace("steps=10", "steps=2")
    executed = nbclient.NotebookClient(
        short, timeout=int(LIMIT), kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    data = [output.data for output in outputs if "data" in output]
    pages = [one["text/html"] for one in data if "text/html" in one and "p = " in one["text/html"]]
    assert len(pages) == 1 and pages[0].count("<p ") == 2 and pages[0].count("w = 1.") > 20
    assert sum("image/png" in one for one in data) == 2
    last = ast.literal_eval(data[-1]["text/plain"])
    assert list(last) == ["GRPO", "TR-GRPO", "mine"]
    assert last["GRPO"]["mean weight"] == 1 < last["TR-GRPO"]["mean weight"] <= 1.4
    assert 0.3 <= last["mine"]["mean weight"] < 1
    # Two steps may see groups without a difference alone, which have no gradient.
    assert all(0 <= run["accuracy"] <= 1 and 0 <= run["unlikely"] <= 1 and run["entropy"] > 0 for run in last.values())
