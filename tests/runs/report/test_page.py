"""The page: everything in one file, nothing from elsewhere, all text escaped, and readable without seeing."""

import base64
import json
import re
from html.parser import HTMLParser

import pytest

from tests.runs.report.files import (
    generation,
    write_comparison,
    write_generations,
    write_record,
    write_run,
    write_steps,
)
from verl_trgrpo.runs.report.build import ReportOptions, build_report

VOID = {"meta", "img", "br", "hr"}
EVIL = '<script>alert(1)</script>"><img src=x onerror=alert(2)>&amp;'


class Page(HTMLParser):
    """What a browser would see: tags with attributes, text by tag, and whether all tags are closed in order."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.tags, self.text, self.open = [], [], []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append((self.open[-1] if self.open else "", data))

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    def words(self, *tags):
        return " ".join(" ".join(data for tag, data in self.text if not tags or tag in tags).split())


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Three arms with everything a report can have."""
    root = tmp_path_factory.mktemp("report")
    study = write_comparison(root / "study", {"grpo": 0.05, "tr_grpo": 0.08}, seeds=2)
    run = write_run(root / "dapo-seed0", 0.02, last=4)
    write_generations(run / "validation", {0: [generation("p", "bad", 0.0)], 4: [generation("p", "good", 1.0)]})
    return build_report(ReportOptions(runs=(str(study), str(run)), out=root / "out" / "page.html"))


@pytest.fixture(scope="module")
def page(report):
    return Page(report.page)


def test_nothing_comes_from_elsewhere(page):
    assert page.all("script") == page.all("link") == page.all("iframe") == []
    links = [
        value for _, attrs in page.tags for name, value in attrs.items() if name in ("src", "href", "srcset", "data")
    ]
    assert links and all(link.startswith(("data:image/png;base64,", "#")) for link in links)
    assert "url(" not in page.source and "@import" not in page.source
    assert "default-src 'none'" in str(page.all("meta"))


def test_the_pictures_are_in_the_page(page):
    embedded = [base64.b64decode(image["src"].partition(",")[2]) for image in page.all("img")]
    assert all(picture.startswith(b"\x89PNG") for picture in embedded)
    assert len(set(embedded)) == len(embedded) == 11


def test_every_picture_is_told_in_words_and_numbers(page):
    texts = [image["alt"] for image in page.all("img")]
    assert "grpo, 2 seeds: 0.310 to 0.610" in texts[0]
    assert "tr_grpo, 2 seeds: 0.700 to 0.700" in texts[8]
    assert "dapo" not in texts[8], "it logged no weights"


def test_tables_and_sections_have_heads_and_anchors_lead_somewhere(page):
    heads = page.all("th")
    assert heads and all(head.get("scope") in ("col", "row") for head in heads)
    ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    assert {link["href"] for link in page.all("a")} == {f"#{name}" for name in ids}
    assert [attrs["aria-labelledby"] in ids for attrs in page.all("section")].count(False) == 0
    assert page.all("html") == [{"lang": "en"}]
    assert page.words("h1") == "Training runs compared"


def test_what_the_page_says(page):
    words = page.words()
    assert "tr_grpo: validation accuracy 0.630" in words  # at step 4, the last that all reached
    assert "+0.120 p=0.50 (1.00) against grpo: with so few runs no such test could tell them apart" in words
    assert "The comparison takes steps up to 4" in words
    assert "Before, step 0: wrong (score 0)" in words and "After, step 4: right (score 1)" in words


def test_text_of_others_is_text(tmp_path):
    run = write_run(tmp_path / "x-seed0", 0.1, weight=1.2)
    write_record(run, arm=EVIL, seed=0, commit=EVIL, machine=EVIL, settings={EVIL: EVIL}, finished=False)
    output = f"</pre>{EVIL} \u202e $x$ \x00 \ud800 end"
    rows = {step: [generation(f"{EVIL} $\\frac", output, float(step))] for step in (0, 1)}
    write_generations(run / "validation", rows)
    page = Page(build_report(ReportOptions(runs=(str(run),), out=tmp_path / "r.html")).page)
    assert page.all("script") == [] and len(page.all("img")) == 11
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    # In the prompt, in its right answer and in both responses; what no page may hold is replaced.
    assert page.words("pre").count("alert(1)") == 4
    assert page.words("pre").endswith("$x$ \ufffd ? end")


def test_the_same_runs_give_the_same_page_and_replace_the_old_one(tmp_path):
    run = write_run(tmp_path / "grpo-seed0", 0.1, weight=1.2)
    options = ReportOptions(runs=(str(run),), out=tmp_path / "out" / "r.html")
    first = build_report(options).page.read_bytes()
    (tmp_path / "out" / "r.html").write_text("older")
    assert build_report(options).page.read_bytes() == first
    assert not list((tmp_path / "out").rglob(".*")), "no temporary file is left"


def test_two_steps_without_validation_weights_or_records_are_enough(tmp_path):
    write_steps(tmp_path / "bare" / "metrics-1.jsonl", {step: {"actor/grad_norm": float("nan")} for step in (1, 2)})
    report = build_report(ReportOptions(runs=(str(tmp_path / "bare"),), out=tmp_path / "r.html"))
    assert report.summary == ["no validation accuracy was logged; --metric NAME takes another metric"]
    page = Page(report.page)
    assert page.all("img") == []
    assert "No run has validation responses" in page.words()
    assert "not recorded" in page.words()


def test_responses_of_a_single_validation_are_shown(tmp_path):
    run = write_run(tmp_path / "grpo-seed0", 0.05)
    write_generations(run / "validation", {6: [generation("p", "good", 1.0), generation("q", "bad", 0.0)]})
    words = Page(build_report(ReportOptions(runs=(str(run),), out=tmp_path / "r.html")).page).words()
    assert "1 right, 1 wrong" in words and "step 6: right (score 1) good" in words
    assert "Before" not in words and "No run has" not in words


def test_only_figures_that_are_in_the_table_are_explained(tmp_path):
    """A single validation has neither a best accuracy nor an area."""
    runs = []
    for arm in ("grpo", "tr_grpo"):
        steps = {0: {"actor/grad_norm": 1.0}, 6: {"actor/grad_norm": 1.1, "val-core/kk/acc/mean@1": 0.5}}
        runs.append(str(write_steps(tmp_path / f"{arm}-seed0" / "metrics-1.jsonl", steps).parent))
    words = Page(build_report(ReportOptions(runs=tuple(runs), out=tmp_path / "r.html")).page).words("li")
    assert "final accuracy:" in words and "grad norm:" in words
    assert "best accuracy" not in words and "area" not in words


def test_model_and_data_that_no_record_names_are_said_to_be_missing(tmp_path):
    study = write_comparison(tmp_path / "study", {"grpo": 0.05, "tr_grpo": 0.08}, seeds=1)

    def row(name):
        page = build_report(ReportOptions(runs=(str(study),), out=tmp_path / "r.html")).page.read_text()
        return re.search(rf'<th scope="row">{name}</th>(.*?)</tr>', page, re.DOTALL)[1]

    assert "not recorded" in row("model") and "not recorded" in row("training data") and ">6<" in row("steps")
    options = {"arm": "grpo", "model": "/home/me/models/tiny", "train": "data/kk/train.parquet"}
    (study / "runs" / "grpo" / "seed-0" / "options.json").write_text(json.dumps(options))
    assert "models/tiny" in row("model") and "kk/train.parquet" in row("training data")
    assert "not recorded" in row("model"), "of the other arm"


def test_many_arms_with_odd_names(tmp_path):
    labels = ["_hidden", "$\\frac$", "a" * 200, *(f"arm{i}" for i in range(8))]
    runs = [f"{label}={write_run(tmp_path / f'run{i}', 0.01 * i)}" for i, label in enumerate(labels)]
    page = Page(build_report(ReportOptions(runs=tuple(runs), out=tmp_path / "r.html", baseline="_hidden")).page)
    assert all(f"{label}, 1 seed: " in page.all("img")[0]["alt"] for label in labels)


def test_wrong_options_come_out_at_once(tmp_path):
    with pytest.raises(ValueError, match=r"(?s)2 problems.*no runs.*is a directory"):
        ReportOptions(runs=(), out=tmp_path)
    run = str(write_run(tmp_path / "grpo-seed0", 0.1))
    options = ReportOptions(runs=(run,), out=tmp_path / "r.html", baseline="x", metric="y")
    with pytest.raises(ValueError, match="2 problems") as caught:
        build_report(options)
    message = str(caught.value)
    assert "they are grpo" in message and "val-core/kk_3ppl/acc/mean@1" in message


def test_one_run_alone_has_no_statistics_and_says_what_it_was(tmp_path):
    study = write_comparison(tmp_path / "study", {"grpo": 0.05}, seeds=1)
    run = study / "runs" / "grpo" / "seed-0"
    options = {"arm": "grpo", "lr": 0.001, "model": "/home/me/models/tiny", "out": str(run)}
    (run / "options.json").write_text(json.dumps(options))
    page = build_report(ReportOptions(runs=(str(run),), out=tmp_path / "one.html")).page.read_text()
    for words in ("sign-flip", "95 %", "over seeds", "the baseline", "paired"):
        assert words not in page, words
    assert "A training run: grpo" in page and "models/tiny" in page and "0.001" in page and "/home/me" not in page


def test_settings_that_differ_between_arms_stand_first(tmp_path):
    study = write_comparison(tmp_path / "study", {"grpo": 0.05, "tr_grpo": 0.08}, seeds=2)
    for arm, rate in (("grpo", 1e-6), ("tr_grpo", 2e-6)):
        for seed in (0, 1):
            options = {"arm": arm, "prompts": 4, "lr": rate, "weight_decay": 0.1}
            (study / "runs" / arm / f"seed-{seed}" / "options.json").write_text(json.dumps(options))
    page = build_report(ReportOptions(runs=(str(study),), out=tmp_path / "two.html")).page.read_text()
    rows = re.findall(
        r'<tr(?: class="(differs)")?><th scope="row">(arm|prompts|lr|weight_decay)</th>(.*?)</tr>', page, re.DOTALL
    )
    assert [(name, mark) for mark, name, _ in rows] == [
        ("arm", "differs"),
        ("lr", "differs"),
        ("prompts", ""),
        ("weight_decay", ""),
    ]
    assert "1e-06" in rows[1][2] and "2e-06" in rows[1][2] and rows[2][2].count("<td") == 1
