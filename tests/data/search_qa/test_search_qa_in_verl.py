"""The written files in veRL's own data set class, with a real tokenizer and chat template."""

import pytest
from search_qa_files import run, write_collection

from verl_trgrpo.data.search_qa.prompts import LOOPS

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
    model.train_from_iterator(["question answer"], trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, chat_template=CHAT_TEMPLATE)


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_rlhf_dataset_loads_all_files_together_and_golds_score_full_marks(tmp_path, monkeypatch, tokenizer, loop):
    datasets = pytest.importorskip("datasets")
    rl_dataset = pytest.importorskip("verl.utils.dataset.rl_dataset")
    from omegaconf import OmegaConf

    from verl_trgrpo.rewards import compute_score

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    source = write_collection(tmp_path / "source", count=3)
    assert run(tmp_path / "out", "--source", source, "--loop", loop, "--val-per-set", "1") == 0
    files = [str(tmp_path / "out" / f"{name}.parquet") for name in ("train", "test", "val")]
    config = OmegaConf.create(
        {
            "cache_dir": str(tmp_path / "verl"),
            "max_prompt_length": 4096,
            "filter_overlong_prompts": True,
            "filter_overlong_prompts_workers": None,
        }
    )
    data = rl_dataset.RLHFDataset(files, tokenizer, config)
    assert len(data) == 2 * 3 + 7 * 3 + 7, "no prompt may be lost to an error in the chat template"
    batch = rl_dataset.collate_fn([data[i] for i in range(len(data))])
    assert set(batch["agent_name"]) == {LOOPS[loop].agent_name}
    for messages, source_name, reward_model, tools_kwargs, info in zip(
        *(batch[key] for key in ("raw_prompt", "data_source", "reward_model", "tools_kwargs", "extra_info")),
        strict=True,
    ):
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        text = tokenizer.decode(ids)
        assert text.count("<|im_start|>") == 2
        assert f"Question: {info['question']}<|im_end|>" in text
        # The loop hands over this mapping by tool name, and the tool gets only what is below it.
        assert tools_kwargs.get("search").get("create_kwargs") == {"question": info["question"]}
        for answer in reward_model["ground_truth"]["target"]:
            response = f"<think>x</think><answer>{answer}</answer>"
            assert compute_score(source_name, response, reward_model["ground_truth"], dict(info))["score"] == 1.0
