"""Evaluations as a user runs them: vLLM on a CPU, a trained model, a search server.

The evaluation of a sharded checkpoint is in ``test_two_ranks.py``, which has one.
"""

import json
import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

from tests.cluster.eval_commands import evaluate, responses
from tests.cluster.held_eval import MADE
from tests.cluster.training import LIMIT, ROOT, doors
from tests.waiting import wait_for
from verl_trgrpo.cli.main import main
from verl_trgrpo.demos.puzzles import CHECKPOINT, MAX_RESPONSE_TOKENS

ROWS, K = 48, 4


def test_an_interrupted_evaluation_goes_on_and_samples_the_same(puzzles, tmp_path, capsys):
    out = tmp_path / "out"
    words = (
        "--model", CHECKPOINT, "--data", puzzles / "test.parquet", "--limit", ROWS, "--k", K, "--temperature", 1.0,
        "--max-tokens", MAX_RESPONSE_TOKENS, "--out", out,
    )  # fmt: skip
    path = out / "test.jsonl"
    with (tmp_path / "log").open("w") as log:
        held = [sys.executable, "-m", "tests.cluster.held_eval", "eval", *map(str, words)]
        process = subprocess.Popen(held, stdout=log, stderr=log, cwd=ROOT, start_new_session=True)
        wait_for(lambda: process.poll() is not None or (path.exists() and path.read_bytes().count(b"\n") >= MADE))
        assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
        children = psutil.Process(process.pid).children(recursive=True)
        assert doors([psutil.Process(process.pid), *children]) == []
        os.killpg(process.pid, signal.SIGINT)  # a terminal's Ctrl-C reaches vLLM's processes, too
        assert process.wait(LIMIT) == 130, (tmp_path / "log").read_text()[-3000:]
    said = (tmp_path / "log").read_text()
    assert "interrupted; the same command continues" in said and "Traceback" not in said
    assert not psutil.wait_procs(children, timeout=LIMIT)[1], "vLLM outlived the evaluation"
    before = responses(path)
    assert len(before) == MADE

    # Some that were there are taken away: they must come back as they were, in other company.
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[10:]))
    evaluate(*words)
    after = responses(path)
    by_row = {row: tuple(after[row, sample] for sample in range(K)) for row, _ in after}
    assert len(by_row) == len({*by_row.values()}) == ROWS and len(after) == ROWS * K
    assert {key: after[key] for key in before} == before
    assert sum(len({*samples}) > 1 for samples in by_row.values()) > 0.75 * ROWS, "samples do not differ"

    # Complete: nothing is made or loaded, and the report is the same.
    report, engine_log = (out / "report.json").read_text(), out / "vllm.log"
    engine_log.unlink()  # to which an engine that has ended may still write
    assert main(["eval", *map(str, words)]) == 0
    assert ": 0 new responses" in capsys.readouterr().out
    assert (out / "report.json").read_text() == report and not engine_log.exists()


def test_questions_that_need_searches_are_evaluated_with_the_training_loop(tmp_path, capsys):
    from examples.search_world import CHECKPOINT as SEARCHING
    from examples.search_world import prepare, server_process

    prepare(tmp_path, 0)
    out = tmp_path / "out"
    settings = ["topk=2", "max_searches=3", "max_turn_tokens=40", "max_observation_tokens=96"]
    # No search may fail on a machine that is busy with other things, too.
    settings += ["deadline=600", "max_concurrency=4"]
    words = (
        "--model", SEARCHING, "--data", tmp_path / "data" / "test.parquet", "--limit", 96, "--temperature", 1.0, "--k", 2,
        "--max-tokens", 272, "--out", out, "--agent", *settings,
    )  # fmt: skip
    with server_process(tmp_path / "index", tmp_path / "server.log") as (_, url):
        table = evaluate(*words, f"url={url}")
    lines = [json.loads(line) for line in (out / "test.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * 96
    searched = [line for line in lines if line["extra"]["rollout_metrics"]["searches"] > 0]
    assert len(searched) > 50
    for line in searched:
        assert line["text"].count("<information>") >= 1
        assert not any("<information>" in text for text in line["extra"]["model_text"])
    # The demonstration's accuracy before training, sampled: 0.27, with a standard error of 0.03 there and less here.
    value = json.loads((out / "report.json").read_text())["sources"]["search_qa"]["avg"]["mean"]
    assert value == pytest.approx(0.27, abs=0.12)
    assert "failed" not in table

    # Complete, so the server is not needed; with a response missing it is.
    assert main(["eval", *map(str, words), f"url={url}"]) == 0
    assert ": 0 new responses" in capsys.readouterr().out
    path = out / "test.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    assert main(["eval", *map(str, words), f"url={url}"]) == 2
    assert re.search(r"error: the rows need a search server, and http://\S+ does not work", capsys.readouterr().err)
