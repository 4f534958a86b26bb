"""``verl-trgrpo eval`` in a process of its own, its responses, and greedy responses without vLLM to compare them with."""

import json
import subprocess
import sys
from pathlib import Path

import torch

from tests.cluster.training import LIMIT
from verl_trgrpo.demos.puzzles import MAX_RESPONSE_TOKENS


def command(*words) -> list[str]:
    return [sys.executable, "-m", "verl_trgrpo", "eval", *map(str, words)]


def evaluate(*words) -> str:
    result = subprocess.run(command(*words), capture_output=True, text=True, check=False, timeout=LIMIT)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def responses(path: Path) -> dict[tuple[int, int], str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {(line["row"], line["sample"]): line["text"] for line in lines}
    assert len(found) == len(lines), "a response was made twice"
    return found


def greedy_by_transformers(tokenizer, model, rows) -> list[str]:
    """Greedy responses without vLLM: one batch, padded on the left."""
    texts = [tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False) for row in rows]
    inputs = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
    with torch.no_grad():
        output = model.generate(**inputs, do_sample=False, max_new_tokens=MAX_RESPONSE_TOKENS)
    return tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
