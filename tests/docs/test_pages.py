"""What the documentation shows runs as it stands."""

import ast
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fresh import run_fresh
from verl_trgrpo.core import available_shapings

DOCS = Path(__file__).parents[2] / "docs"


def test_the_first_page_is_short():
    assert len((DOCS.parent / "README.md").read_text().splitlines()) <= 100


@pytest.mark.parametrize("command", ["make quickstart", "make test"])
def test_the_first_page_names_both_commands_with_what_they_do_and_how_long(command):
    [(what, time)] = re.findall(rf"^{command} +# (.+): (.+)$", (DOCS.parent / "README.md").read_text(), re.MULTILINE)
    assert len(what.split()) > 5 and re.search(r"hour|minutes", time)


@pytest.mark.parametrize("folder", ["recipes", "data_prep", "tests"])
def test_the_first_page_names_the_folders_that_a_user_looks_for(folder):
    readme = (DOCS.parent / "README.md").read_text()
    assert re.search(rf"^\| `{folder}/` \| .{{20,}} \|$", readme, re.MULTILINE) and (DOCS.parent / folder).is_dir()


def test_the_first_page_has_the_numbers_of_the_pages_that_own_them():
    pages = ("README.md", "docs/results.md", "docs/results/rewards.md")
    readme, results, judge = ((DOCS.parent / page).read_text() for page in pages)
    table = readme.partition("## Does it help?")[2].partition("## Algorithms")[0]
    numbers = re.findall(r"[-+]?0\.\d{2,3}", table)
    assert len(numbers) > 8 and [number for number in numbers if number not in results] == []
    counts = re.findall(r"^\| all \|(.*)\|$", judge, re.MULTILINE)
    assert len(counts) == 3
    for row in counts:
        right, wrong, other, others = (map(int, cell.split(" of ")) for cell in row.split("|"))
        for paid, of in (right, other):
            assert f"{100 * paid / of:.0f} %" in readme
        (paid, of), (more, _) = wrong, others
        assert f"{paid} of {of}" in readme and re.search(rf"\b{more}\b", readme)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_of_pages_outside_the_site_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?://)([^)#]+)", (DOCS.parent / page).read_text())
    assert links and all((DOCS.parent / link).exists() for link in links)


@pytest.mark.parametrize(
    "mistake",
    ["[x](nowhere.md)", "[x](#nowhere)", "[x](../verl_trgrpo/nowhere.py)", "::: verl_trgrpo.core.nowhere", ""],
)
def test_the_site_is_built_strictly(tmp_path, mistake):
    """As `make lint` builds it, with one page; without a mistake it is built."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# Page\n\n{mistake}\n\n[real](../verl_trgrpo/py.typed)\n")
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {DOCS.parent}/mkdocs.yml\ndocs_dir: {tmp_path}/docs\nsite_dir: {tmp_path}/site\nnav: [index.md]\n"
        f"hooks: [{DOCS}/hooks.py]\n"
    )
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(tmp_path / "mkdocs.yml")]
    built = subprocess.run(command, capture_output=True, text=True, cwd=DOCS.parent)
    assert (built.returncode == 0) is (mistake == ""), built.stderr


def test_every_shaping_has_a_row_and_a_golden_value():
    """That it has a YAML file, test_registration asks."""
    rows = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "shapings.md").read_text(), re.MULTILINE))
    golden = "".join(file.read_text() for file in (DOCS.parent / "tests/core").glob("test_*shapings.py"))
    assert {*available_shapings()} - rows == set(), "add rows to docs/shapings.md"
    assert [name for name in available_shapings() if f'"{name}"' not in golden] == [], "add to test_shapings"


def test_tests_that_the_code_names_exist():
    files = [path.read_text() for path in (DOCS.parent / "verl_trgrpo").rglob("*.py")]
    named = {path for text in files for path in re.findall(r"tests/[\w/]+\.py", text)}
    assert len(named) > 8 and all((DOCS.parent / path).is_file() for path in named)


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_loss_without_verl():
    [code] = [block for block in python_blocks("shapings.md") if "compute_policy_loss" in block]
    names = {}
    exec(code, names)
    assert names["log_prob"].grad.abs().sum() > 0 and names["result"].metrics["tr_weight_mean"] >= 1


def test_the_question_reaches_the_mathematics_reward_of_a_direct_call():
    [code] = python_blocks("math_rules.md")
    names = {}
    exec(code, names)
    assert (names["asked"]["score"], names["asked"]["restated"], names["plain"]["score"]) == (0.0, 1.0, 1.0)


OWN = """
import sys
sys.path.insert(0, {directory!r})
import numpy, torch, verl
from types import SimpleNamespace
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
from verl_trgrpo import make_shaping

print(make_shaping("cosine", floor=0.3)(torch.tensor([0.0, 0.5, 1.0])).tolist())
print(make_shaping("certain_and_rare").inputs)
groups, mask = numpy.array(["a", "b", "a", "a", "b"]), torch.tensor([[1.0, 1.0]] * 4 + [[1.0, 0.0]])
rewards = torch.tensor([[0.0, 3.0], [0.0, 1.0], [0.0, 1.0], [0.0, 7.0], [2.0, 0.0]])
print(get_adv_estimator_fn("median")(token_level_rewards=rewards, response_mask=mask, index=groups, config=None)[0].tolist())
print(get_adv_estimator_fn("prompt_mean")(token_level_rewards=rewards, response_mask=mask, index=groups, config=None)[0].tolist())
config = SimpleNamespace(clip_ratio=0.2, global_batch_info={{}})
old, new = torch.tensor([[0.5, 0.4]]).log(), torch.tensor([[0.6, 0.9]]).log()
loss, metrics = get_policy_loss_fn("quadratic")(old, new, torch.tensor([[2.0, 5.0]]), torch.tensor([[1.0, 0.0]]), config=config)
print([loss.item(), metrics["actor/weight_mean"]])
"""

RECIPES = """
import sys
sys.path.insert(0, {directory!r})
import torch, verl
from types import SimpleNamespace
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl_trgrpo import make_shaping
from verl_trgrpo.core import Tokens
from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig
from tests.verl_plugin.test_policy_loss import actor

p = torch.tensor([[0.5, 0.4, 0.9], [0.2, 0.8, 0.1]], dtype=torch.double)
tokens = Tokens.of_batch(
    p.log(), old_log_prob=p.log(), advantages=torch.tensor([[1.0] * 3, [-1.0] * 3]),
    response_mask=torch.tensor([[1, 1, 0], [1, 1, 1]]),
    success_rate=torch.full((2, 3), 0.25), ref_log_prob=p.flip(0).log(), responses=torch.tensor([[7, 8, 9], [9, 7, 7]]),
    rollout_log_prob=torch.tensor([[0.5, 0.05, 0.9], [0.5, 0.2, 0.05]], dtype=torch.double).log(),
)
more = {{"f_grpo": {{"gamma": 2.0}}, "without_token": {{"token": 7}}}}
for name in ("luspo", "f_grpo", "wapo", "near_reference", "without_token", "truncated"):
    print([round(x, 6) for x in make_shaping(name, **more.get(name, {{}})).weigh(tokens)[tokens.valid].tolist()])
gradients = []
for mode, name in (("seq-mean-token-mean", "luspo"), ("seq-mean-token-sum", "uniform")):
    config = actor(TRGRPOPolicyLossConfig(shaping=make_shaping(name), loss_mode="gspo"))
    log_prob = p.log().float().requires_grad_()
    loss, _ = get_policy_loss_fn("tr_gspo")(p.flip(1).log().float(), log_prob, tokens.advantages, tokens.valid, mode, config)
    loss.backward()
    gradients.append(log_prob.grad)
print([torch.allclose(*gradients), bool(gradients[0].any())])
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What `OWN` and `RECIPES` print, a line each value."""
    directory = tmp_path_factory.mktemp("own")
    (directory / "my_methods.py").write_text("\n\n".join(python_blocks("write_your_own.md")))
    code = (OWN + RECIPES).format(directory=str(directory))
    lines = run_fresh(code, {"VERL_USE_EXTERNAL_MODULES": "my_methods"}).out.splitlines()[-12:]
    return [ast.literal_eval(line) for line in lines]


def test_recipes_are_their_formulas(printed):
    luspo, f_grpo, wapo, near, without, truncated, same = printed[5:]
    assert luspo == [2, 2, 3, 3, 3] and wapo == [1, 1, 0, 0, 0] and without == [0, 1, 1, 0, 0]
    assert f_grpo == [0.75**2] * 5
    assert truncated == [1.0] * 5, "on policy"
    assert near == pytest.approx([0.4, 0.5, 0.4, 0.5, 1 / 9], abs=1e-6)
    assert same == [True, True], "GSPO with weights of length is GSPO with sums"


def test_methods_of_one_s_own_give_what_their_formulas_say(printed):
    weights, inputs, advantages, prompt_mean, quadratic = printed[:5]
    assert weights == pytest.approx([0.3, 0.65, 1.0])
    assert inputs == ("probs", "entropy", "advantages")
    assert advantages == [[0, 0], [-0.5, -0.5], [-2, -2], [4, 4], [0.5, 0]]
    # Rewards 3, 1, 7 with 6 tokens and 1, 2 with 3; two prompts.
    std = statistics.stdev([3, 1, 7]), statistics.stdev([1, 2])
    expected = [(r - mean) / std[group] / tokens / 2 for r, mean, group, tokens in
                [(3, 11 / 3, 0, 6), (1, 1.5, 1, 3), (1, 11 / 3, 0, 6), (7, 11 / 3, 0, 6), (2, 1.5, 1, 3)]]  # fmt: skip
    for row, value in zip(prompt_mean, expected, strict=True):
        assert row == pytest.approx([value, value if row is not prompt_mean[4] else 0], abs=1e-5)
    weight = 0.3 + 0.7 * (1 - math.cos(math.pi * 0.6)) / 2
    assert quadratic == pytest.approx([weight * (-2 * 1.2 + 2 * 0.2**2 / (2 * 0.2)), weight])
