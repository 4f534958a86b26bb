"""The written files in veRL's own data set classes, with a real tokenizer and chat template."""

from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.knights_and_knaves.build import KkOptions, build


def test_rlhf_dataset_loads_the_files(tmp_path, load_in_verl, tokenizer):
    build(KkOptions(out=tmp_path / "kk", people=(2, 3), train=8, test=4))
    for split, count in (("train", 16), ("test", 8)):
        data, batch = load_in_verl([tmp_path / "kk" / f"{split}.parquet"])
        assert len(data) == count, "no prompt may be lost to an error in the chat template"
        assert list(batch["index"]) == list(range(count))
        assert set(batch["data_source"]) == {"kk_2ppl", "kk_3ppl"}
        for messages, reward_model, info in zip(
            batch["raw_prompt"], batch["reward_model"], batch["extra_info"], strict=True
        ):
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
            text = tokenizer.decode(ids)
            assert text.count("<|im_start|>assistant") == 1
            assert text.count("<|im_start|>") == 2
            assert text.endswith("<|im_start|>assistant\n")
            names = [line.split(" ")[1] for line in reward_model["ground_truth"].split("\n")]
            assert names == info["names"]
            assert all(name in text for name in names)
            assert info["split"] == split


def test_rlhf_dataset_joins_files_of_different_builds_and_every_gold_scores_full_marks(tmp_path, load_in_verl):
    build(KkOptions(out=tmp_path / "a", people=(2, 3), train=8, test=4))
    build(KkOptions(out=tmp_path / "b", people=(5, 8), train=3, test=1))
    names = ["a/train", "a/test", "b/train", "b/test"]
    data, batch = load_in_verl([tmp_path / f"{name}.parquet" for name in names])
    assert len(data) == 16 + 8 + 6 + 2
    for source, reward_model, info in zip(
        batch["data_source"], batch["reward_model"], batch["extra_info"], strict=True
    ):
        gold = reward_model["ground_truth"]
        response = f"<think>Clear.</think><answer>{gold}</answer>"
        assert compute_score(source, response, gold, info)["score"] == 3.0
