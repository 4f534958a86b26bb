"""A real tokenizer and chat template, and the written files in veRL's own data set class."""

import pytest

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
