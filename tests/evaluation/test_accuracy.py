"""From verdicts to figures and the table."""

import json
from dataclasses import asdict

import pytest

from verl_trgrpo.data.rows import Row
from verl_trgrpo.evaluation.accuracy import Verdict, score_responses, share, summarize, summary_text
from verl_trgrpo.evaluation.response_store import Response


def row(position, source="math500", text=None, gold="4"):
    messages = [{"role": "user", "content": text or f"question {position}"}]
    return Row(position, source, messages, gold, {"index": position}, "single_turn_agent")


def items(accs, source="math500", reason="timed_out", **fields):
    """One item for each acc of each prompt; None is an unknown verdict."""
    return [
        (
            row(position, source),
            Response(position, sample, "", tokens=10 * (sample + 1), cut=sample == 0),
            Verdict(acc, format_ok=0.5, reason=reason if acc is None else "", **fields),
        )
        for position, values in enumerate(accs)
        for sample, acc in enumerate(values)
    ]


def test_figures_of_a_small_case_by_hand():
    summary = summarize(items([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), k=2, seed=0)
    (source,) = summary.sources.values()
    assert (source.prompts, source.responses) == (5, 10)
    assert source.avg.mean == pytest.approx(0.5) and source.avg.low < 0.5 < source.avg.high
    assert {j: found.mean for j, found in source.pass_at.items()} == {1: 0.5, 2: 0.8}
    assert (source.tokens, source.cut, source.format_ok) == (15, 0.5, 0.5)
    assert summary.mean_of_sources is None


def test_the_reward_gets_the_prompt_and_how_it_was_rendered():
    asks_for_a_line = row(0, text="End your response with 'Answer: $Answer'.")
    texts = {"Answer: 4": 1.0, "<answer>4</answer>": 0.0}
    for text, acc in texts.items():
        for extra, factor in (({}, 1.0), ({"thinking_opened": True}, 0.0)):
            response = Response(0, 0, text, 9, cut=False, extra=extra)
            [(_, _, verdict)] = score_responses([asks_for_a_line], [response])
            assert verdict.acc == acc * factor
    given = Response(0, 0, "", 9, cut=True, extra={"model_text": [""]}).reward_input(asks_for_a_line)
    assert given == {
        "index": 0, "model_text": [""], "raw_prompt": asks_for_a_line.messages, "thinking_opened": False, "cut_off": True,
    }  # fmt: skip


def test_unknown_verdicts_are_left_out_and_counted():
    summary = summarize(items([[1.0, None], [0.0, 1.0], [None, None]]), k=2, seed=0)
    (source,) = summary.sources.values()
    assert source.avg.mean == pytest.approx((1 + 0.5) / 2)
    assert source.no_verdict == 3
    assert source.pass_at[2].mean == 1.0, "only one prompt has two known verdicts"
    assert "verdicts.jsonl" in summary_text(summary)


def test_a_problem_that_a_file_repeats_is_one_prompt():
    repeated = [
        (row(position, text="the same"), Response(position, 0, "", 1, False), Verdict(float(position < 4)))
        for position in range(16)
    ]
    (source,) = summarize(repeated, k=1, seed=0).sources.values()
    assert (source.prompts, source.responses) == (1, 16)
    assert source.avg.mean == 0.25 and source.avg.low is None


def test_sources_are_separate_and_their_mean_weights_them_equally():
    mixed = items([[1.0], [0.0]] * 3, "kk_3ppl") + items([[1.0]] * 8 + [[0.0]] * 2, "kk_4ppl")
    summary = summarize(mixed, k=1, seed=0)
    assert [*summary.sources] == ["kk_3ppl", "kk_4ppl"]
    assert summary.mean_of_sources.mean == pytest.approx((0.5 + 0.8) / 2)
    assert summary.mean_of_sources.low < summary.mean_of_sources.mean < summary.mean_of_sources.high


def test_the_table_lines_up_and_the_report_is_json():
    summary = summarize(items([[1.0, 0.0]] * 3, "aime2024") + items([[1.0, 1.0]], "amc2023"), k=2, seed=0)
    lines = summary_text(summary).splitlines()
    assert lines[0].split()[:5] == ["data", "source", "prompts", "n", "avg@2"] and "pass@2" in lines[0]
    assert len({len(line) for line in lines[:3]}) == 1
    assert lines[3].startswith("mean of sources")
    read = json.loads(json.dumps(asdict(summary)))
    assert read["sources"]["aime2024"]["pass_at"]["2"]["mean"] == 1.0
    assert read["sources"]["aime2024"]["avg"] == {"mean": 0.5, "low": None, "high": None}


def test_each_source_has_a_table_of_pass_at_j():
    summary = summarize(
        items([[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]] * 5, "aime2024") + items([[1.0] * 6], "amc2023"), k=6, seed=0
    )
    assert {j: found.mean for j, found in summary.sources["aime2024"].pass_at.items()} == pytest.approx(
        {1: 1 / 6, 2: 1 / 3, 4: 2 / 3, 6: 1.0}
    )
    heads = [line.split() for line in summary_text(summary).splitlines() if "pass@4" in line]
    assert heads == [[name, "pass@1", "pass@2", "pass@4", "pass@6"] for name in ("aime2024", "amc2023")]


def test_fewer_than_five_prompts_have_no_interval():
    for groups in ([[0.0, 1.0, 1.0, 0.5]], [[0.0, 1.0, 0.25, 0.25], [1.0] * 30 + [0.0]]):
        assert share(*groups, seed=0).low is None
    assert share([0.0, 1.0, 1.0, 0.5, 0.5], seed=0).low is not None
    assert share([0.0, 1.0], [], seed=0) is None


def verdicts(rows, responses):
    return [verdict for _, _, verdict in score_responses(rows, responses)]


def test_responses_are_scored_by_the_reward_of_their_row():
    rows = [row(0), row(1, gold=r"\frac{"), row(2, "kk_3ppl", gold="no solution")]
    texts = [r"\boxed{4}", r"\boxed{5}", "anything"]
    right, unknown, broken = verdicts(rows, [Response(i, 0, text, 1, False) for i, text in enumerate(texts)])
    assert (right.acc, right.reason) == (1.0, "")
    assert (unknown.acc, unknown.reason) == (None, "gold")
    assert broken.acc is None and broken.reason


def test_a_default_reward_scores_sources_without_one():
    rows, responses = [row(0, "own"), row(1, "")], [Response(i, 0, r"\boxed{4}", 1, False) for i in range(2)]
    assert [item[2].acc for item in score_responses(rows, responses)] == [None, 1.0]
    scored = score_responses(rows, responses, default_reward="math")
    assert [item[2].acc for item in scored] == [1.0, 1.0]
    assert any(line.startswith("'' ") for line in summary_text(summarize(scored, 1, 0)).splitlines())


def test_what_the_agent_loop_says_about_the_response_reaches_the_reward():
    asked = row(0, "search_qa", gold={"target": ["Paris"]})
    text = "<information><answer>Paris</answer></information><answer>Rome</answer>"
    extra = {"model_text": ["<search>x</search>", "<answer>Rome</answer>"], "rollout_metrics": {"failed_searches": 2.0}}
    (verdict,) = verdicts([asked], [Response(0, 0, text, 1, False, extra)])
    assert (verdict.acc, verdict.counts) == (0.0, {"failed_searches": 2.0})
