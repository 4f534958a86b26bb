"""What the documentation shows runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_first_page_is_short():
    assert len((DOCS.parent / "README.md").read_text().splitlines()) <= 180


def test_the_loss_without_verl(tmp_path):
    text = (DOCS / "shapings.md").read_text()
    [code] = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "compute_policy_loss" in block]
    code += "\nassert log_prob.grad.abs().sum() > 0 and result.metrics['tr_weight_mean'] >= 1\n"
    code += "import sys\nassert 'verl' not in sys.modules\n"
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_a_shaping_of_one_s_own(tmp_path):
    text = (DOCS / "shapings.md").read_text()
    [code] = [
        block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "my_package/shapings.py" in block
    ]
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package/shapings.py").write_text(code)
    program = (
        "import torch\nfrom verl_trgrpo.core import make_shaping\n"
        "print(make_shaping('my_package.shapings.cosine', floor=0.3)(torch.tensor([0.0, 1.0])).tolist())\n"
        "print(make_shaping('my_package.shapings.certain_and_rare').inputs)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[1] == "('probs', 'entropy', 'advantages')" and ended.stdout.startswith("[0.3")
