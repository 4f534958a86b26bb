"""The written files in veRL's own data set class, with a real tokenizer and chat template."""

import pytest

from verl_trgrpo.data.kk_build import KkDatasetOptions, build

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def tokenizer():
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["<|im_start|>", "<|im_end|>"]
    )
    model.train_from_iterator(["knight knave"], trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, chat_template=CHAT_TEMPLATE)


@pytest.mark.slow
@pytest.mark.parametrize(("prompt", "system"), [("paper", False), ("paper", True), ("short", False)])
def test_rlhf_dataset_loads_the_files(tmp_path, monkeypatch, tokenizer, prompt, system):
    datasets = pytest.importorskip("datasets")
    rl_dataset = pytest.importorskip("verl.utils.dataset.rl_dataset")
    from omegaconf import OmegaConf

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    build(KkDatasetOptions(out=tmp_path, people=(2, 3), train=8, test=4, prompt=prompt, system=system))
    config = OmegaConf.create(
        {
            "cache_dir": str(tmp_path / "verl"),
            "max_prompt_length": 4096,
            "filter_overlong_prompts": True,
            "filter_overlong_prompts_workers": None,
        }
    )
    for split, count in (("train", 16), ("test", 8)):
        data = rl_dataset.RLHFDataset(str(tmp_path / f"{split}.parquet"), tokenizer, config)
        assert len(data) == count, "no prompt may be lost to an error in the chat template"
        batch = rl_dataset.collate_fn([data[i] for i in range(count)])
        assert list(batch["index"]) == list(range(count))
        assert set(batch["data_source"]) == {"kk_2ppl", "kk_3ppl"}
        for messages, reward_model, info in zip(
            batch["raw_prompt"], batch["reward_model"], batch["extra_info"], strict=True
        ):
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
            text = tokenizer.decode(ids)
            assert text.count("<|im_start|>assistant") == 1
            assert text.count("<|im_start|>") == (3 if system else 2)
            assert text.endswith("<|im_start|>assistant\n")
            names = [line.split(" ")[1] for line in reward_model["ground_truth"].split("\n")]
            assert names == info["names"]
            assert all(name in text for name in names)
            assert info["split"] == split
