"""Rows that the mathematics reward can score, none of which the warm start has seen."""

import pyarrow.parquet as pq

from verl_trgrpo.decontaminate import ContaminationOptions, find_contamination
from verl_trgrpo.small_lm import word_problem_dataset as dataset
from verl_trgrpo.small_lm.task import TASKS
from verl_trgrpo.tasks import compute_score


def test_test_train_and_warm_start_problems_are_different_ones(tmp_path):
    task = TASKS["word_problems"]
    assert task.build_dataset(tmp_path) and not task.build_dataset(tmp_path)
    rows = {split: pq.read_table(tmp_path / f"{split}.parquet").to_pylist() for split in ("train", "test")}
    assert [len(rows[split]) for split in ("train", "test")] == [dataset.TRAIN, dataset.TEST]
    prompts = [row["prompt"][0]["content"] for split in rows.values() for row in split]
    prompts += [shown.messages[0]["content"] for shown in dataset.warm_start_demonstrations(0)]
    assert len({*prompts}) == len(prompts) == dataset.TRAIN + dataset.TEST + dataset.WARM_START
    # Templates are shared, so that runs of words come back; whole problems do not.
    options = ContaminationOptions(tmp_path / "train.parquet", (tmp_path / "test.parquet",), threshold=1.0)
    assert find_contamination(options).matches == ()
    for row in rows["test"]:
        truth = row["reward_model"]["ground_truth"]
        assert compute_score(row["data_source"], rf"So it is \boxed{{{truth}}}.", truth)["acc"] == 1.0
        assert compute_score(row["data_source"], rf"So it is \boxed{{{int(truth) + 1}}}.", truth)["acc"] == 0.0
