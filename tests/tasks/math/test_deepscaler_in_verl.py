"""The written files in veRL's own data set class, all of them in one run, and their ground truths in the reward."""

import pytest

from tests.data.builder_files import rows_of
from tests.tasks.math.deepscaler_files import EXPECTED, write_all
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.math.build import DeepscalerOptions, build


@pytest.mark.slow
def test_rlhf_dataset_reads_all_files_in_one_run(tmp_path, load_in_verl, tokenizer):
    build(DeepscalerOptions(out=tmp_path / "out", source=str(write_all(tmp_path / "source"))))
    data, batch = load_in_verl([tmp_path / "out" / name for name in EXPECTED])
    assert len(data) == sum(len(golds) for _, golds in EXPECTED.values())
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
