"""The method in one file: it trains, its log-probabilities are those of the policy, and it stays short."""

import json
import runpy
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.scripts import ROOT, load_scripts

SCRIPT = ROOT / "recipes" / "minimal" / "train.py"


@pytest.fixture(scope="module")
def minimal():
    [module] = load_scripts(SCRIPT.parent, SCRIPT.stem)
    return module


def test_it_is_short():
    assert len(SCRIPT.read_text().splitlines()) <= 250


def test_log_probs_of_a_padded_batch_are_those_of_each_response_alone(minimal, tiny_run):
    tokenizer = AutoTokenizer.from_pretrained(tiny_run / "model")
    model = AutoModelForCausalLM.from_pretrained(tiny_run / "model", dtype=torch.float32).eval()
    rows = minimal.read_rows(tiny_run / "train.parquet", tokenizer)[:3]
    torch.manual_seed(0)
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(40)]  # so that lengths differ
    batch = minimal.sample(model, tokenizer, rows, 4, 12)
    found, width = minimal.log_probs(model, batch), batch.mask.shape[1]
    assert len({*batch.seen.sum(-1).tolist()}) > 3
    for ids, seen, mask, own in zip(batch.ids, batch.seen, batch.mask, found, strict=True):
        alone = ids[seen.bool()]
        table = torch.log_softmax(model(alone[None]).logits[0].double(), -1)
        expected = table[:-1].gather(-1, alone[1:, None])[-int(mask.sum()) :, 0]
        torch.testing.assert_close(own[mask].double(), expected, rtol=0, atol=2e-5)
    assert width <= 12


def test_it_trains_and_the_first_update_is_on_policy(minimal, tiny_run, tmp_path, monkeypatch):
    score = lambda source, text, truth, extra: {"score": float(len(text) % 7), "acc": float(len(text) % 2)}  # noqa: E731
    monkeypatch.setattr(minimal, "compute_score", score)
    given = {"train": tiny_run / "train.parquet", "test": tiny_run / "test.parquet", "model": str(tiny_run / "model")}
    sizes = {"steps": 2, "prompts": 4, "samples": 4, "mini_prompts": 4, "max_tokens": 12, "lr": 0.01}
    assert minimal.train(minimal.Options(**given, **sizes, out=tmp_path / "run")) == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics-1.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert line["data"]["actor/grad_norm"] > 0 and abs(line["data"]["actor/ppo_kl"]) < 1e-6
    assert any(name.startswith("val-core/") for name in lines[1]["data"])
    before, after = (
        AutoModelForCausalLM.from_pretrained(path).state_dict()
        for path in (tiny_run / "model", tmp_path / "run" / "model")
    )
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_wrong_input_is_named_at_once_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    words = ["--train", "no.parquet", "--out", tmp_path / "out", "--lr", "0", "--samples", "1"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, words)])
    with pytest.raises(SystemExit, match=r"^2$"):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    said = capsys.readouterr().err
    assert all(part in said for part in ("no.parquet does not exist", "lr=0", "samples=1")) and "Traceback" not in said
    assert not (tmp_path / "out").exists()
