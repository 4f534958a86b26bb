"""Chat templates and tokenizers of strangers: whatever jinja2 and tokenizers can do, the limits of the sandbox hold for it."""

import ast
import json
import os
import shutil
from functools import partial
from pathlib import Path

import psutil
import pytest
from jinja2.filters import FILTERS
from jinja2.tests import TESTS
from omegaconf import OmegaConf

from verl_trgrpo.common.sandbox import MEMORY_LIMIT
from verl_trgrpo.data import prompts
from verl_trgrpo.data.prompts import RolloutPrompts, ask_model, close_sandbox, prompt_settings
from verl_trgrpo.demos.puzzles import CHECKPOINT

ENOUGH = 0.1  # seconds of the processor: several times what the prompts below need
ROW = {"prompt": [{"role": "user", "content": "x"}]}
# Values of a hundred million characters or entries; jinja2 computes them before a filter or an operator sees them.
VALUES = ("'ab <c> ' * 20000000", "'x y ' * 30000000", "[1] * 30000000", "['ab', 'cd'] * 9000000", "7 ** 300000")
ARGUMENTS = ("", "(999999999)", "('ab')", "(999999999, 999999999)", "(1)")
OPERATORS = (
    "7 ** (7 ** 9)", "10 ** (10 ** 8)", "'x' * 3000000000", "[0] * 900000000", "(1, 2) * 900000000", "'%999999999d' % 1",
    "'%s' % ('x' * 3000000000)", "'{:999999999}'.format(1)", "'x'.ljust(4000000000)", "'x'.center(4000000000)",
    "'x'.zfill(4000000000)", "('\\t' * 900).expandtabs(99999999)", "('a' * 30000000).replace('a', 'b' * 300)",
    "'a'.join(['b' * 9000] * 3000000)", "('x' * 900000000) ~ ('x' * 900000000)", "('x' * 900000000) in ('y' * 900000000)",
    "range(99999)|list * 99999", "dict(a=1).items()|list * 900000000", "lipsum(n=99999, max=99999)", "(9 ** 9000000) // 7",
)  # fmt: skip
STATEMENTS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
    "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}",
    "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(300) }}",
    "{% set ns = namespace(x=0) %}{% for a in [0] recursive %}{{ loop([0]) }}{% endfor %}",
    "{% filter upper %}{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}{% endfilter %}",
    "{{ 'x' * 60000000 }}",
    "{{ raise_exception('x' * 900000000) }}",
)


def applied(names, how):
    """Every filter or test of jinja2 on one of the values: a new one is tried by itself."""
    for number, name in enumerate(sorted(names)):
        yield f"({VALUES[number % len(VALUES)]}){how}{name}{ARGUMENTS[number // 2 % len(ARGUMENTS)]}"


TEMPLATES = [
    *(f"{{{{ {each} }}}}" for each in OPERATORS),
    *STATEMENTS,
    *(f"{{{{ ({each})|string|length }}}}" for each in (*applied(FILTERS, "|"), *applied(TESTS, " is "))),
]


def held(ask, *arguments):
    """Return the outcome of a question, which has to be a value, an error for the user, or the limit."""
    try:
        return ask(*arguments)
    except (ValueError, TimeoutError, RuntimeError) as error:
        assert len(str(error)) < 1000
        return error


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setattr(prompts, "_TEMPLATE_SECONDS", ENOUGH)
    return shutil.copytree(CHECKPOINT, tmp_path / "model")


@pytest.fixture(scope="module", autouse=True)
def closed():
    yield
    close_sandbox()


def sizes():
    """Bytes in memory of this process and of those that it has started."""
    own = psutil.Process()
    return own.memory_info().rss, max((each.memory_info().rss for each in own.children(recursive=True)), default=0)


# What opens a model's files or renders a template, and where: in the sandbox, and in processes that need the model after it was
# opened there (SECURITY.md says what remains).
OPENING = {
    "from_pretrained",
    "from_config",
    "apply_chat_template",
    "build_initial_tokens",
    "hf_tokenizer",
    "hf_processor",
    "open_tokenizer",
}
ALLOWED = {
    "checks/construct/options.py": {"apply_chat_template"},  # its parameters, in the sandbox that constructs
    "checks/construct/engine.py": {"from_config"},  # in the sandbox that constructs, on meta
    "data/renderer.py": OPENING,
    "evaluation/adapter.py": {"from_pretrained"},  # in a process of its own, what veRL's merger has just written
    "memory/shape.py": {"from_config"},  # transformers' own classes on meta, without code of the model
    "tasks/search_qa/loop.py": {"apply_chat_template"},  # loops run in veRL's own processes
}


def opening(source):
    """The names of `OPENING` that a source text calls, by whatever name it imports them."""
    nodes = list(ast.walk(ast.parse(source)))
    named = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    imported = {name.name for each in nodes if isinstance(each, ast.ImportFrom) for name in each.names}
    return (named | imported) & OPENING


def test_models_are_opened_and_templates_rendered_in_the_sandbox_alone():
    package = Path(prompts.__file__).parents[1]
    assert opening("from verl.utils.tokenizer import hf_tokenizer as x\nt.apply_chat_template()") == {
        "hf_tokenizer",
        "apply_chat_template",
    }
    found = {str(path.relative_to(package)): opening(path.read_text()) for path in package.rglob("*.py")}
    assert {name: calls for name, calls in found.items() if calls - ALLOWED.get(name, set())} == {}
    assert ALLOWED.keys() <= {name for name, calls in found.items() if calls}


def opened(model, template):
    config = OmegaConf.create({"actor_rollout_ref": {"model": {"custom_chat_template": template}}})
    return RolloutPrompts(prompt_settings(config, str(model)))


def test_no_template_takes_more_than_its_limits(model):
    """Rendered when the tokenizer is opened: ``opens_thinking`` asks first."""
    assert opened(model, "{{ messages[0].content }}").lengths([ROW]) == [1]
    before, _ = sizes()
    limits = 0
    for template in TEMPLATES:
        outcome = held(opened, model, template)
        limits += "does not end" in str(outcome)
        own, worker = sizes()
        assert own < before + (64 << 20), template
        assert worker < MEMORY_LIMIT + (1 << 30), template
    assert limits > len(TEMPLATES) // 4
    assert opened(model, "{{ messages[0].content }}").lengths([ROW]) == [1]


def test_a_template_that_takes_its_time_for_one_prompt_names_it(model):
    template = (
        "{% if messages[0].content == 'y' %}{{ 7 ** (messages|length * 7 ** 9) }}{% endif %}{{ messages[0].content }}"
    )
    found, bad = opened(model, template), {"prompt": [{"role": "user", "content": "y"}]}
    assert found.lengths([ROW] * 200) == [1] * 200
    for ask in (found.of, found.lengths):
        with pytest.raises(RuntimeError, match=r"does not end for a prompt of \d+ characters \(it takes more than"):
            ask([ROW, bad, ROW])
    assert found.lengths([ROW]) == [1]


def tokenizer_files(change):
    content = json.loads(Path(CHECKPOINT, "tokenizer.json").read_text())
    change(content)
    return json.dumps(content)


def split(pattern):
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return lambda content: content.update(pre_tokenizer=step)


def replacing(part, **step):
    """Put steps that replace text into the normalizer or the decoder."""
    key = f"{part}s"
    steps = [{"type": "Replace", "pattern": {"String": step["old"]}, "content": step["new"]}] * step["times"]

    def change(content):
        before = [content[part]] if part == "decoder" else []
        content[part] = {"type": "Sequence", key: [*before, {"type": "Fuse"}, *steps] if before else steps}

    return change


TOKENIZERS = {
    # At each place a million ways, fewer than those at which the library of regular expressions gives up by itself.
    "nested quantifiers": split(r"(x{1,4}x{1,4}){5}y"),
    "look-ahead": split(r"(?=(x|xx){20}y)x"),
    "invalid": split("("),
    "normalizer that grows": replacing("normalizer", old="x", new="y" * 9_000_000, times=1),
    "normalizers that double": replacing("normalizer", old="x", new="xx", times=60),
    "decoder that grows": replacing("decoder", old="x", new="y" * 9_000_000, times=1),
    "decoders that double": replacing("decoder", old="x", new="xx", times=60),
    "nested": lambda content: content.update(normalizer=json.loads('{"a":' * 300 + "1" + "}" * 300)),
    "ids beyond": lambda content: content["added_tokens"].append({"id": 10**18, "content": "z", "special": True}),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_no_tokenizer_takes_more_than_its_limits(model, name):
    """The class takes ``tokenizer.json`` as it is; that of the demo makes a normalizer of its own."""
    (model / "tokenizer.json").write_text(tokenizer_files(TOKENIZERS[name]))
    for file, key, value in (
        ("config.json", "model_type", "llama"),
        ("tokenizer_config.json", "tokenizer_class", "PreTrainedTokenizerFast"),
    ):
        content = json.loads((model / file).read_text())
        (model / file).write_text(json.dumps(content | {key: value}))
    before, _ = sizes()

    def measured():
        found = opened(model, "{{ messages[0].content }}")
        [prompt] = found.of([{"prompt": [{"role": "user", "content": "x" * 5000}]}])
        return found.tokenizer.decode(prompt.token_ids)

    outcome = held(measured)
    assert isinstance(outcome, ValueError if name in ("invalid", "nested", "ids beyond") else RuntimeError), outcome
    assert sizes()[0] < before + (64 << 20)
    held(partial(ask_model, seconds=1.0), "vocabulary", {"tokenizer": str(model), "trust": False})
    assert os.getpid() not in {each.pid for each in psutil.Process().children()}
