"""Fixtures that tests of several packages share."""

import gc
import os
import pickle
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from omegaconf import OmegaConf

from tests.data.checked_files import row, truth, user, write
from verl_trgrpo.config import OWN_CONFIGS
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.runs.compose import DEFAULT_CONFIG, ComposedRun, compose
from verl_trgrpo.runs.overrides import added_keys

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
    # As in a shell that has entered the environment: messages call its programs by their names.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"


def pytest_collection_finish() -> None:
    """Freeze the half million objects that torch and veRL keep: collecting them again costs a fifth of a composition's time."""
    gc.collect()
    gc.freeze()


@contextmanager
def shipped_yaml_parsed_once() -> Iterator[None]:
    """Half of a composition's time goes into parsing some forty files of veRL and of this package again, in pure Python."""
    load, places = (
        OmegaConf.load,
        ("/verl/trainer/config/", "/hydra/conf/", "/more_methods/config/", f"{OWN_CONFIGS}/"),
    )
    parsed = cache(lambda path, _changed: load(path))

    def load_once(file):
        path = Path(getattr(file, "name", file if isinstance(file, str) else ""))
        shipped = any(place in str(path) for place in places)
        return parsed(path, path.stat().st_mtime_ns).copy() if shipped else load(file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OmegaConf, "load", load_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def fast_compositions():
    with shipped_yaml_parsed_once():
        yield


@cache
def _composed_once(*arguments) -> tuple[ComposedRun, bytes]:
    """Composing takes a quarter of a second of a processor even so; reading a pickle again takes a hundredth."""
    run = compose(*arguments)
    return run, pickle.dumps(run.config)


def composed(
    overrides: Sequence[str] = (), source: str | Path = DEFAULT_CONFIG, platform: str | None = None
) -> ComposedRun:
    """Return what ``compose(source, overrides, platform)`` returns, from one composition for each set of group choices.

    Overrides of values are applied to a copy by Hydra's own code. Tests of errors while composing need ``compose`` itself.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_overrides(list(overrides))
    groups = [override for override in parsed if "." not in override.key_or_group or "@" in override.input_line]
    base, pickled = _composed_once(source, tuple(override.input_line for override in groups), platform)
    config = pickle.loads(pickled)
    values = [override for override in parsed if override not in groups]
    ConfigLoaderImpl._apply_overrides_to_config(values, config)
    added = frozenset(added_keys(overrides) - set(base.choices))
    return replace(base, config=config, arguments=(*base.arguments, *(each.input_line for each in values)), added=added)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory) -> Path:
    """Directory with ``model`` (random weights), ``train.parquet`` and ``test.parquet``."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from examples.makers import demonstrations, tiny_model, warm_start
    from verl_trgrpo.tasks.knights_and_knaves.puzzles import english, format_solution, generate_puzzles

    directory = tmp_path_factory.mktemp("tiny_run")
    puzzles = list(generate_puzzles(3, 40, seed=0))
    rng = random.Random(0)
    claims = [[english(statement, p.names, terse=True) for statement in p.statements] for p in puzzles]
    prompts = [
        "\n".join(map(": ".join, zip(p.names, said, strict=True))) for p, said in zip(puzzles, claims, strict=True)
    ]
    texts = [
        prompt + demonstrations.truth_table_response(p, True, rng) for prompt, p in zip(prompts, puzzles, strict=True)
    ]
    tokenizer = tiny_model.train_tokenizer(texts, 360, warm_start.PuzzleModel.added_tokens)
    tokenizer.save_pretrained(directory / "model")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(directory / "model")
    rows = [
        row(i, "train" if i < 32 else "test", data_source="kk_3ppl", prompt=user(prompt))
        | truth(format_solution(p.names, p.solution))
        for i, (prompt, p) in enumerate(zip(prompts, puzzles, strict=True))
    ]
    write(directory / "train.parquet", rows[:32])
    write(directory / "test.parquet", rows[32:])
    return directory


_PYTHON = sys.executable


@pytest.fixture
def fake_driver(tmp_path, monkeypatch):
    """``fake_driver(script)`` runs lines of shell in place of veRL's trainer, its arguments in ``$@``."""

    def install(script: str) -> None:
        driver = tmp_path / "driver"
        masked = f'[ "$2" = verl_trgrpo.launch.masked ] && exec {_PYTHON} "$@"'
        driver.write_text(f"#!/bin/sh\n{masked}\n{script}\n")
        driver.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(driver))

    return install


@pytest.fixture(scope="session")
def puzzles(tmp_path_factory) -> Path:
    """Directory with the quickstart's ``train.parquet`` and ``test.parquet``."""
    from verl_trgrpo.demos.puzzles import build_dataset

    directory = tmp_path_factory.mktemp("puzzles")
    build_dataset(directory)
    return directory


@pytest.fixture
def registry(monkeypatch):
    """The module of registered tasks: what a test registers does not outlive it."""
    from verl_trgrpo.tasks import registry

    copies = {name: dict(known) for name, known in vars(registry._known).items()}
    monkeypatch.setattr(registry, "_known", registry.Task(**copies))
    return registry


CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def tokenizer():
    """Bytes and a few merges: every text survives it."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["<|im_start|>", "<|im_end|>"]
    )
    model.train_from_iterator(["What is the answer to the question of the knight and the knave?"], trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, chat_template=CHAT_TEMPLATE)


@pytest.fixture
def datasets_cache(tmp_path, monkeypatch):
    """What Hugging Face's library keeps of data sets that this process loads goes into the test's directory."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def load_in_verl(tmp_path, datasets_cache, tokenizer):
    """veRL's own data set of the given files, and all its rows as one batch."""
    rl_dataset = pytest.importorskip("verl.utils.dataset.rl_dataset")
    from omegaconf import OmegaConf

    config = {
        "cache_dir": str(tmp_path / "verl"),
        "max_prompt_length": 4096,
        "filter_overlong_prompts": True,
        "filter_overlong_prompts_workers": None,
    }

    def load(files):
        data = rl_dataset.RLHFDataset([str(file) for file in files], tokenizer, OmegaConf.create(config))
        return data, rl_dataset.collate_fn([data[i] for i in range(len(data))])

    return load


@pytest.fixture
def sound_run(tmp_path) -> list[str]:
    """Overrides of a sound run, of which tests break one thing at a time, with a tiny model and two files of 50 rows.

    The run directory is ``tmp_path / "run"``.
    """
    rows = {name: [row(i, prompt=user(f"Zoey, Oliver{i} {name}")) for i in range(50)] for name in ("train", "test")}
    train, test = (write(tmp_path / f"{name}.parquet", made) for name, made in rows.items())
    return [
        f"data.train_files={train}", f"data.val_files={test}", "data.train_batch_size=8", "data.max_prompt_length=64",
        "data.max_response_length=24", "data.filter_overlong_prompts=true", f"actor_rollout_ref.model.path={CHECKPOINT}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8", "trainer.n_gpus_per_node=1",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1", f"trainer.default_local_dir={tmp_path / 'run'}",
        "trainer.save_freq=10", "ray_kwargs.ray_init.num_cpus=64",
        # Of a machine that has them, wherever the tests run.
        "++ray_kwargs.ray_init.num_gpus=${trainer.n_gpus_per_node}",
    ]  # fmt: skip
