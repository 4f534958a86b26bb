"""The written files in veRL's own data set class, all of them in one run, and their ground truths in the reward."""

import pytest
from deepscaler_files import EXPECTED, rows_of, write_all

from verl_trgrpo.data.math.build import DeepscalerOptions, build
from verl_trgrpo.rewards import compute_score

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
    model.train_from_iterator(["What is the answer"], trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, chat_template=CHAT_TEMPLATE)


@pytest.mark.slow
def test_rlhf_dataset_reads_all_files_in_one_run(tmp_path, monkeypatch, tokenizer):
    datasets = pytest.importorskip("datasets")
    rl_dataset = pytest.importorskip("verl.utils.dataset.rl_dataset")
    from omegaconf import OmegaConf

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    build(DeepscalerOptions(out=tmp_path / "out", source=str(write_all(tmp_path / "source"))))
    config = OmegaConf.create(
        {
            "cache_dir": str(tmp_path / "verl"),
            "max_prompt_length": 4096,
            "filter_overlong_prompts": True,
            "filter_overlong_prompts_workers": None,
        }
    )
    paths = [str(tmp_path / "out" / name) for name in EXPECTED]
    data = rl_dataset.RLHFDataset(paths, tokenizer, config)
    assert len(data) == sum(len(golds) for _, golds in EXPECTED.values())
    batch = rl_dataset.collate_fn([data[i] for i in range(len(data))])
    expected = [(source, gold) for source, golds in EXPECTED.values() for gold in golds]
    found = [
        (source, list(reward_model["ground_truth"]))
        for source, reward_model in zip(batch["data_source"], batch["reward_model"], strict=True)
    ]
    assert found == expected
    for messages in batch["raw_prompt"]:
        text = tokenizer.decode(
            tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        )
        assert text.endswith("\\boxed{}.<|im_end|>\n<|im_start|>assistant\n")


def test_each_ground_truth_scores_full_marks(tmp_path):
    build(DeepscalerOptions(out=tmp_path / "out", source=str(write_all(tmp_path / "source"))))
    for name in EXPECTED:
        for row in rows_of(tmp_path / "out" / name):
            truth = row["reward_model"]["ground_truth"]
            for gold in truth:
                right = compute_score(
                    row["data_source"], f"It is $\\boxed{{{gold.strip('$')}}}$.", truth, row["extra_info"]
                )
                assert (right["score"], right["acc"], right["gold_unparseable"]) == (1.0, 1.0, 0.0)
            wrong = compute_score(row["data_source"], "It is \\boxed{-12345}.", truth, row["extra_info"])
            assert wrong["score"] == 0.0
