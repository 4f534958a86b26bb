"""The page: its figures, notes and pictures, everything in one file, all text escaped."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.compare.files import (
    generation,
    write_comparison,
    write_generations,
    write_record,
    write_run,
    write_steps,
)
from verl_trgrpo.compare.arms import group_arms, read_runs
from verl_trgrpo.compare.comparison import compare_runs
from verl_trgrpo.compare.finished import notes
from verl_trgrpo.compare.page import ReportOptions, read_samples, write_report

VOID = {"meta", "img"}
EVIL = '<script>alert(1)</script>"><img src=x onerror=alert(2)>&amp;'
NORM = "actor/grad_norm"


class Page(HTMLParser):
    """Tags with attributes and text by tag, as a browser reads them; every tag is closed in order."""

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


def arms_of(root):
    return group_arms(read_runs([str(root)]), "grpo")


def compared(arms, upto):
    return compare_runs(arms, "grpo", upto=upto)[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Three arms with everything that a page can have; texts are hostile."""
    root = tmp_path_factory.mktemp("report")
    study = write_comparison(root / "study", {"grpo": 0.05, "tr_grpo": 0.08}, seeds=2)
    for arm, rate in (("grpo", 1e-6), ("tr_grpo", 2e-6)):
        options = {"arm": arm, "lr": rate, "weight_decay": 0.1, "model": "/home/me/models/tiny"}
        (study / "runs" / arm / "seed-0" / "options.json").write_text(json.dumps(options))
    run = write_run(root / "dapo-seed0", 0.02, last=4)
    write_record(run, arm=EVIL, seed=0, commit=EVIL, settings={EVIL: EVIL}, finished=False)
    output = f"</pre>{EVIL} \u202e $x$ \x00 \ud800 end"
    rows = {step: [generation(f"{EVIL} $\\frac", output, float(step))] for step in (0, 1)}
    write_generations(run / "validation", rows)
    options = ReportOptions(runs=(str(study), str(run)), out=root / "out" / "page.html")
    return options, write_report(options), Page(options.out)


def test_the_page_has_tables_curves_responses_and_the_settings_that_differ(built):
    _, told, page = built
    assert "0.790" in page.words("td") and "p=0.50\u00a0(1.00)" in page.words("td").replace(" (", "\u00a0(")
    assert told and all(note in page.words("li") for note in told if EVIL not in note)
    captions = [data for tag, data in page.text if tag == "caption"]
    assert [text.split()[0] for text in captions] == ["Means", "Differences", "Settings", "All"]
    assert [image["alt"] for image in page.all("img")] == [
        "validation accuracy", "training reward", "gradient norm before clipping", "entropy of the sampled tokens",
        "standard deviation of token weights", "gradient of tokens with p < 0.25",
    ]  # fmt: skip
    assert "Before, step 0: wrong (score 0)" in page.words() and "After, step 1: right (score 1)" in page.words()
    settings = page.source[page.source.index("Settings that differ") : page.source.index("All runs")]
    assert "1e-06" in settings and "2e-06" in settings and "weight_decay" in settings, "the third arm has none recorded"
    assert "/home/me" not in settings


def test_the_page_needs_nothing_else_and_text_of_others_stays_text(built):
    _, _, page = built
    assert page.all("script") == page.all("link") == page.all("iframe") == []
    links = [value for _, attrs in page.tags for name, value in attrs.items() if name in ("src", "href", "srcset")]
    assert links and all(link.startswith("data:image/png;base64,") for link in links)
    assert "url(" not in page.source and "@import" not in page.source
    assert "default-src 'none'" in str(page.all("meta"))
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    # In the prompt, in its right answer and in both responses; characters that no page may have are replaced.
    assert page.words("pre").count("alert(1)") == 4
    assert page.words("pre").endswith("$x$ \ufffd ? end")


def test_the_same_runs_give_the_same_page_and_replace_the_old_one(built):
    options, _, page = built
    options.out.write_text("older")
    write_report(options)
    assert options.out.read_text(encoding="utf-8") == page.source


def test_tests_are_those_that_the_study_chose_beforehand(tmp_path):
    """Six pairs of the same sign: p = 2 / 2^6, which a correction for three tests would not leave below 0.05."""
    for arm, slope in (("base", 0.05), ("new", 0.06)):
        for seed in range(6):
            run = write_run(tmp_path / arm / f"seed-{seed}", slope, seed)
            study = {"baseline": "base", "primary": "new", "margin": 0.2}
            write_record(run, arm=arm, seed=seed, finished=True, study=study)
    options = ReportOptions(runs=(str(tmp_path),), out=tmp_path / "r.html")
    write_report(options)
    page = options.out.read_text()
    assert "p=0.031<" in page
    assert "equivalence within 0.2" in page
    # Another baseline was not chosen beforehand.
    write_report(replace(options, baseline="new"))
    assert "p=0.031 (0.094)<" in options.out.read_text()


def test_only_common_seeds_are_paired(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"grpo-seed{seed}", 0.05, seed)
        write_run(tmp_path / f"tr_grpo-seed{seed + 1}", 0.1, seed + 1)
    write_run(tmp_path / "nameless", 0.1)
    arms = arms_of(tmp_path)
    found = compared(arms, 6)
    entry = found["tr_grpo"]["final_accuracy"]
    assert (entry.runs, entry.difference.pairs, entry.difference.test) == (2, 1, None)
    assert entry.difference.estimate.mean == pytest.approx(0.3)
    assert found["nameless"]["final_accuracy"].difference is None
    assert "Not paired, because grpo has no run with the same seed: nameless, tr_grpo seed 2." in notes(arms, "grpo", 6)


def test_runs_are_compared_at_a_step_that_all_reached(tmp_path):
    write_run(tmp_path / "grpo-seed0", 0.1, 0, 6)
    write_run(tmp_path / "tr_grpo-seed0", 0.1, 0, 4)
    arms = arms_of(tmp_path)
    assert compared(arms, 4)["grpo"]["final_accuracy"].estimate.mean == pytest.approx(0.7)
    assert any("Longer runs: grpo seed 0 to 6." in note for note in notes(arms, "grpo", 4))
    # At step 6 the shorter run has no figures.
    found = compared(arms, 6)
    assert found["grpo"] and not found["tr_grpo"]
    assert any("end before step 6: tr_grpo seed 0 at 4." in note for note in notes(arms, "grpo", 6))


def test_a_value_that_is_not_a_number_is_left_out_and_noted(tmp_path):
    write_steps(
        tmp_path / "grpo-seed0" / "metrics-1.jsonl", {s: {NORM: float("nan") if s == 2 else 1.0} for s in range(4)}
    )
    arms = arms_of(tmp_path)
    assert f"Not a number, and left out: {NORM} of grpo seed 0 from step 2." in notes(arms, "grpo", 3)
    assert not any("problems" in note for note in notes(arms, "grpo", 3)), "it ended"
    assert compared(arms, 3)["grpo"]["grad_norm"].estimate.mean == 1.0
    write_steps(tmp_path / "grpo-seed0" / "metrics-1.jsonl", {s: {NORM: 0.0} for s in range(12)})
    [note] = [note for note in notes(arms_of(tmp_path), "grpo", 3) if "problems" in note]
    assert "grpo seed 0, gradient is 0" in note


def test_one_run_without_weights_or_records_is_enough(tmp_path):
    """Of a single validation, which has neither a best accuracy nor an area."""
    steps = {0: {NORM: 1.0}, 6: {NORM: 1.1, "val-core/kk/acc/mean@1": 0.5}}
    run = write_steps(tmp_path / "grpo-seed0" / "metrics-1.jsonl", steps).parent
    write_generations(run / "validation", {6: [generation("p", "good", 1.0), generation("q", "bad", 0.0)]})
    options = ReportOptions(runs=(str(run),), out=tmp_path / "r.html")
    assert write_report(options) == []
    words = Page(options.out).words()
    assert "final accuracy:" in words
    assert "1 right, 1 wrong" in words and "step 6: right (score 1) good" in words
    for absent in (
        "Differences",
        "best accuracy",
        "area",
        "Before",
        "No run has",
        "compared",
        "Comparison",
        "sign-flip",
    ):
        assert absent not in words, absent


def test_wrong_options_are_reported_at_once(tmp_path):
    with pytest.raises(ValueError, match=r"(?s)2 problems.*no runs.*is a directory"):
        ReportOptions(runs=(), out=tmp_path)
    run = str(write_run(tmp_path / "grpo-seed0", 0.1))
    options = ReportOptions(runs=(run,), out=tmp_path / "r.html", baseline="x", metric="y")
    with pytest.raises(
        ValueError, match=r"(?s)2 problems.*--baseline x.*grpo.*--metric y.*val-core/kk_3ppl/acc/mean@1"
    ):
        write_report(options)
    assert not options.out.exists()


def rows(verdicts):
    """A row for each prompt: 1 right, 0 wrong."""
    return [generation(f"p{i}", f"o{i} {score}", float(score)) for i, score in enumerate(verdicts)]


def test_first_and_last_step_of_the_same_prompts(tmp_path):
    write_generations(tmp_path, {2: rows([0, 0]), 10: rows([1, 0]), 9: rows([1, 1]), 0: rows([0, 1, 0])[::-1]})
    found = read_samples(tmp_path, most=4)
    assert (found.first, found.last) == (0, 10)
    assert found.counts == {"wrong to right": 1, "right to wrong": 1}
    assert read_samples(tmp_path, most=4) == found, "drawn with a seed"
    learned, lost = sorted(found.pairs, key=lambda pair: pair.before.prompt)
    assert learned.before[:2] == learned.after[:2] == ("p0", "answer of p0")
    assert (learned.before.text, learned.after.text) == ("o0 0", "o0 1")
    assert (learned.kind, lost.kind) == ("wrong to right", "right to wrong")


def test_a_single_validation_is_shown_alone(tmp_path):
    assert read_samples(tmp_path) is None
    write_generations(tmp_path, {7: [*rows([1, 0, 0]), generation("p0", "again", 0.0)]})
    found = read_samples(tmp_path, most=9)
    assert (found.first, found.last) == (7, 7)
    assert found.counts == {"wrong": 2, "right": 1}
    assert sorted((pair.before, pair.after.text, pair.kind) for pair in found.pairs) == [
        (None, "o0 1", "right"), (None, "o1 0", "wrong"), (None, "o2 0", "wrong"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("score", "more", "verdict"),
    [
        (3.0, {"acc": 0.0}, "wrong"), (-1.0, {"acc": True}, "right"), (1.0, {}, "right"), (0.5, {}, "wrong"),
        (1.0, {"acc": None}, "right"), (None, {}, "not scored"), (float("nan"), {}, "not scored"),
    ],
)  # fmt: skip
def test_the_verdict_goes_by_acc_and_then_by_the_score(tmp_path, score, more, verdict):
    write_generations(tmp_path, {step: [generation("p", "o", score, **more)] for step in (0, 1)})
    (pair,) = read_samples(tmp_path, most=1).pairs
    assert pair.kind == f"{verdict} to {verdict}"


def test_the_first_of_several_responses_counts_and_equal_prompts_are_told_apart_by_their_answers(tmp_path):
    twice = [
        generation("p", "first", 0.0),
        generation("p", "second", 1.0),
        generation("p", "x", 1.0) | {"gts": "other"},
    ]
    write_generations(tmp_path, {0: twice, 1: twice})
    assert sorted((pair.before.truth, pair.before.text) for pair in read_samples(tmp_path, most=9).pairs) == [
        ("answer of p", "first"), ("other", "x"),
    ]  # fmt: skip


def test_an_unfinished_line_waits_and_a_damaged_one_is_left_out(tmp_path, caplog):
    write_generations(tmp_path, {0: rows([1, 1]), 1: rows([1, 1])})
    path = tmp_path / "1.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-10])
    assert len(read_samples(tmp_path, most=9).pairs) == 1
    path.write_text("[]\n" + whole)
    assert len(read_samples(tmp_path, most=9).pairs) == 2 and "1.jsonl, line 1, is damaged (content=[]" in caplog.text


def test_what_verl_dumps_is_read(tmp_path):
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    for step, score in ((0, 0.0), (5, 1.0)):
        PPOTrainer._write_generations(
            ["prompt"], [f"output {step}"], ["truth"], [score], {"acc": [score], "uid": ["u"]}, str(tmp_path), step
        )
    (pair,) = read_samples(tmp_path, most=1).pairs
    assert pair.before == ("prompt", "truth", "output 0", "wrong", 0.0)
    assert pair.after == ("prompt", "truth", "output 5", "right", 1.0)
