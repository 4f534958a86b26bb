"""Fixtures shared by the slow tests: a tiny random model and a little data, both built on the spot."""

import random
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine, not about the code; a busy one is slow now and then.
# Examples are the same in every run, so that a change is judged by what it changed; to look for new ones:
#   pytest --hypothesis-profile=explore
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, derandomize=True
)
settings.register_profile("explore", settings.get_profile("any machine"), derandomize=False, max_examples=2000)
settings.load_profile("any machine")


def pytest_sessionstart() -> None:
    """A shell that starts the tests in the background lets every process below ignore Ctrl-C; some tests send one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: a broken formula should not wait for a training run."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory) -> Path:
    """Directory with ``model`` (random weights), ``train.parquet`` and ``test.parquet``."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from verl_trgrpo.data.kk.prompts import format_solution, puzzle_prompt
    from verl_trgrpo.data.kk.puzzles import generate_puzzles
    from verl_trgrpo.tiny_model.puzzle_texts import demonstration
    from verl_trgrpo.tiny_model.tokenizer import train_tokenizer

    directory = tmp_path_factory.mktemp("tiny_run")
    puzzles = list(generate_puzzles(3, 40, seed=0))
    rng = random.Random(0)
    texts = [puzzle_prompt(p, "short")[0]["content"] + demonstration(p, True, rng) for p in puzzles]
    tokenizer = train_tokenizer(texts, 360, 512)
    tokenizer.save_pretrained(directory / "model")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(directory / "model")
    import pandas

    rows = [
        {
            "data_source": "kk_3ppl",
            "prompt": puzzle_prompt(p, "short"),
            "ability": "logic",
            "reward_model": {"style": "rule", "ground_truth": format_solution(p.names, p.solution)},
            "extra_info": {"index": i, "split": "train"},
        }
        for i, p in enumerate(puzzles)
    ]
    pandas.DataFrame(rows[:32]).to_parquet(directory / "train.parquet")
    pandas.DataFrame(rows[32:]).to_parquet(directory / "test.parquet")
    return directory


@pytest.fixture
def fake_driver(tmp_path, monkeypatch):
    """``fake_driver(script)`` runs lines of shell in place of veRL's trainer, its arguments in ``$@``."""

    def install(script: str) -> None:
        driver = tmp_path / "driver"
        driver.write_text(f"#!/bin/sh\n{script}\n")
        driver.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(driver))

    return install


@pytest.fixture(scope="session")
def puzzles(tmp_path_factory) -> Path:
    """Directory with the quickstart's ``train.parquet`` and ``test.parquet``."""
    from verl_trgrpo.tiny_model.dataset import build_dataset

    directory = tmp_path_factory.mktemp("puzzles")
    build_dataset(directory)
    return directory
