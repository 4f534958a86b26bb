"""What the documentation shows runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

from verl_trgrpo.core import make_shaping

DOCS = Path(__file__).parents[1] / "docs"


def test_the_first_page_is_short():
    assert len((DOCS.parent / "README.md").read_text().splitlines()) <= 180


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_loss_without_verl():
    [code] = [block for block in python_blocks("shapings.md") if "compute_policy_loss" in block]
    names = {}
    exec(code, names)
    assert names["log_prob"].grad.abs().sum() > 0 and names["result"].metrics["tr_weight_mean"] >= 1


def test_a_shaping_of_one_s_own(tmp_path, monkeypatch):
    [code] = [block for block in python_blocks("shapings.md") if "my_package/shapings.py" in block]
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package/shapings.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    cosine = make_shaping("my_package.shapings.cosine", floor=0.3)
    assert cosine(torch.tensor([0.0, 1.0])).tolist() == pytest.approx([0.3, 1.0])
    assert make_shaping("my_package.shapings.certain_and_rare").inputs == ("probs", "entropy", "advantages")
