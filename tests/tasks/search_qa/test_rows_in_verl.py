"""The written files in veRL's own data set class, with a real tokenizer and chat template."""

import pytest

from tests.tasks.search_qa.files import run, write_collection
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.search_qa.prompts import LOOPS


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_rlhf_dataset_loads_all_files_together_and_golds_score_full_marks(tmp_path, load_in_verl, tokenizer, loop):
    source = write_collection(tmp_path / "source", count=3)
    assert run(tmp_path / "out", "--source", source, "--loop", loop, "--val-per-set", "1") == 0
    data, batch = load_in_verl([tmp_path / "out" / f"{name}.parquet" for name in ("train", "test", "val")])
    assert len(data) == 2 * 3 + 7 * 3 + 7, "no prompt may be lost to an error in the chat template"
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
