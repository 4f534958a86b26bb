"""A hostile text in any field of a run's record or configuration stays a text: in the terminal, the page and the model card."""

import shutil
import unicodedata
from html.parser import HTMLParser

import pytest
import yaml
from markdown_it import MarkdownIt
from omegaconf import OmegaConf

from tests.foreign_runs import CONFIG, METRICS, RECORD, arms, call, commands, write_run
from verl_trgrpo.common.text import as_label, as_markdown
from verl_trgrpo.runs.run_directory import check_same_run

HOSTILE = (
    "\x1b]0;title\x07\x1b[2J\u202e\u2066\n# heading\n\n- validation accuracy: 0.999\n<script>alert(1)</script> <b>b</b> | a |\r"
    "`code` [x](http://evil.example) ![i](//evil.example) http://evil.example www.evil.example &lt; *b* __c__ ~~d~~ $\\\\foo$ "
    "{{ 7 * 7 }} \\\\\u2028" + "x" * 10_000
)
PLACES = {"run.json": RECORD, "config.yaml": CONFIG}


def leaves(content, path=()):
    """Yield the place of every value."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield from leaves(value, (*path, key)) if isinstance(value, (dict, list)) and value else [(*path, key)]


def planted(content, places, text):
    if not isinstance(content, (dict, list)):
        return content
    items = [*content.items()] if isinstance(content, dict) else [*enumerate(content)]
    inside = {key: [place[1:] for place in places if place[0] == key] for key, _ in items}
    new = {key: text if () in inside[key] else planted(value, inside[key], text) for key, value in items}
    return new if isinstance(content, dict) else [*new.values()]


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, [name for name, _ in attributes]))


def structure(card):
    """The kinds of everything in a card, and where its links lead; the head is data."""
    _, head, text = card.split("---\n", 2)
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    flat = [inner for token in tokens for inner in [token, *(token.children or [])]]
    return [*yaml.safe_load(head)], [(token.type, token.tag, token.attrs) for token in flat]


def shown(directory, run, caplog):
    """What each command says of a run, and the structure of what it writes."""
    found = {}
    for name, words in commands(directory, run).items():
        if callable(words):
            continue
        shutil.rmtree(directory / "exported", ignore_errors=True)
        code, said = call(words, caplog)
        assert code in (0, 1, 2)
        acting = {
            char for char in said if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        }
        assert not acting and "Traceback" not in said and len(said) < 20_000, name
        if code == 0:
            page, card = directory / "page.html", directory / "exported" / "README.md"
            found[name] = (
                name == "report" and Tags(page.read_text()).found,
                name == "export" and structure(card.read_text()),
            )
    return found


CASES = [(file, [place]) for file, content in PLACES.items() for place in leaves(content)]
CASES += [(file, [*leaves(content)]) for file, content in PLACES.items()]


@pytest.mark.parametrize(("file", "places"), CASES, ids=str)
def test_a_hostile_text_is_a_text(tmp_path, caplog, file, places):
    results = []
    for number, text in enumerate(("word", HOSTILE)):
        directory = tmp_path / f"place{number}"
        directory.mkdir()
        run = arms(directory)
        shutil.rmtree(run)
        content = {name: planted(own, places if name == file else [], text) for name, own in PLACES.items()}
        write_run(run, content["run.json"], content["config.yaml"])
        results.append(shown(directory, run, caplog))
    assert results[0] == results[1]


def test_a_hostile_arm_is_drawn_and_a_changed_run_is_refused_in_plain_characters(tmp_path, caplog, recwarn):
    metrics = [each | {"data": {"val-core/kk/acc/mean@1": 0.5}} for each in METRICS]
    write_run(tmp_path / "one", RECORD | {"arm": HOSTILE}, metrics=metrics)
    code, said = call(["report", str(tmp_path / "one"), "--out", str(tmp_path / "page.html")], caplog)
    assert code == 0 and "\x1b" not in said and not [each for each in recwarn if "Glyph" in str(each.message)]
    changed = planted(CONFIG, [("data", "seed")], HOSTILE)
    write_run(tmp_path / "two", config=changed)
    with pytest.raises(ValueError, match=r"data\.seed") as caught:
        check_same_run(OmegaConf.create(CONFIG), tmp_path / "two")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "text", ["tr_grpo", "verl 0.9.1", "org/Qwen2.5-3B", "kk/a.parquet, b.parquet", "0.750 (step 10)"]
)
def test_a_harmless_text_stays_as_it_is(text):
    assert as_markdown(text) == as_label(text) == text
