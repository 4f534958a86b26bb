"""veRL's reward loop with several Ray workers, judges of which are killed while they have questions."""

import contextlib
import math
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import ray
import torch
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl import DataProto
from verl.experimental.reward_loop import RewardLoopManager

from tests.conftest import composed
from tests.waiting import wait_for
from verl_trgrpo.demos.puzzles import CHECKPOINT

WORKERS = 3
MARK = "TEST_OF_THE_REWARD_LOOP"


def expanded_power(n):
    terms = [f"{math.comb(6, k) * n**k}x^{{{6 - k}}}" for k in range(1, 5)]
    return f"x^{{6}}+{'+'.join(terms)}+{6 * n**5}x+{n**6}"


# Gold, a right answer and a wrong one, by a number; the first two kinds are decided without a judge.
KINDS = {
    "fraction": lambda n: (rf"\frac{{{n}}}{{{n + 1}}}", rf"\dfrac{{{3 * n}}}{{{3 * n + 3}}}", rf"\frac{{{n + 1}}}{{{n}}}"),
    "interval": lambda n: (rf"({n},\infty)", f"x > {n}", rf"x \ge {n}"),
    "root": lambda n: (rf"{n}\sqrt{{13}}", rf"\sqrt{{{13 * n * n}}}", rf"\sqrt{{{13 * n * n + 1}}}"),
    "product": lambda n: (f"(x+{n})(x-3)", f"x^2+{n - 3}x-{3 * n}", f"x^2+{n - 3}x+{3 * n}"),
    "power": lambda n: (expanded_power(n), f"(x+{n})^6", f"(x+{n + 1})^6"),
    "sine": lambda n: (rf"\sin({n}x)\cos({n}x)", rf"\frac{{\sin({2 * n}x)}}{{2}}", rf"\frac{{\sin({2 * n}x)}}{{{n}}}"),
}  # fmt: skip
# It keeps a judge at work until its limit.
SLOW = "+".join(f"{n}!" for n in range(20_000, 19_900, -1))


def answers():
    """Return 300 ground truths and answers, each with whether it is right, in a random order."""
    found = []
    for write in KINDS.values():
        for gold, right, wrong in map(write, range(5, 30)):
            found += [(gold, right, True), (gold, wrong, False)]
    random.Random(0).shuffle(found)
    return found


def batch_of(tokenizer, rows):
    """Return what veRL's trainer hands to its reward loop."""
    prompt = tokenizer.encode("What?")
    responses = [torch.tensor(tokenizer.encode(rf"So \boxed{{{answer}}}.")) for _, answer, _ in rows]
    masks = [torch.ones(len(prompt) + len(response), dtype=torch.int64) for response in responses]
    tokens = {
        "prompts": torch.tensor([prompt] * len(rows)),
        "responses": torch.nn.utils.rnn.pad_sequence(responses, batch_first=True),
        "attention_mask": torch.nn.utils.rnn.pad_sequence(masks, batch_first=True),
    }
    fields = {
        "data_source": ["math"] * len(rows),
        "reward_model": [{"ground_truth": gold} for gold, _, _ in rows],
        "raw_prompt": [[{"role": "user", "content": "What?"}]] * len(rows),
        "extra_info": [{"index": index} for index in range(len(rows))],
    }
    columns = {}
    for name, values in fields.items():
        columns[name] = np.empty(len(rows), dtype=object)
        columns[name][:] = values
    return DataProto(TensorDict(tokens, batch_size=len(rows)), columns)


@pytest.fixture
def manager(monkeypatch):
    monkeypatch.setenv(MARK, "1")  # every process below has it
    overrides = [f"actor_rollout_ref.model.path={CHECKPOINT}", f"reward.num_workers={WORKERS}"]
    ray.init(num_cpus=WORKERS, include_dashboard=False)
    try:
        yield RewardLoopManager(composed([*overrides, "data.max_response_length=256"], "trgrpo_trainer").config)
    finally:
        ray.shutdown()
        for pid in running_judges():  # of a test that has failed
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def judges_of(worker):
    """Return the process ids of the judges that a reward worker has started, and how many have a question."""

    def ask(_):
        from verl_trgrpo.judge.judgment import formula_judges

        return [each.process.pid for each in formula_judges.judges if each.process], len(formula_judges._busy)

    return ray.get(worker.__ray_call__.remote(ask))


def running_judges():
    """Return the judges and their workers that this test has started."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        facts = process.info
        if MARK in (facts["environ"] or ()) and "verl_trgrpo.common.sandbox" in " ".join(facts["cmdline"] or ()):
            found += [process.pid] if facts["status"] != psutil.STATUS_ZOMBIE else []
    return found


def test_killed_judges_cost_no_verdict_and_none_outlives_its_worker(manager):
    rows, workers = answers(), manager.reward_loop_workers
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    assert len(rows) == 300 and len(workers) == WORKERS
    found = [manager.compute_rm_score(batch_of(tokenizer, rows[:90]))]
    before = [judges_of(worker)[0] for worker in workers]
    assert all(before)
    for pids in before[:2]:
        for pid in pids:
            os.killpg(pid, signal.SIGSTOP)  # so that their questions wait until they are killed
    with ThreadPoolExecutor(1) as pool:
        rest = pool.submit(manager.compute_rm_score, batch_of(tokenizer, rows[90:]))
        for worker, pids in zip(workers[:2], before[:2], strict=True):
            wait_for(lambda: judges_of(worker)[1] >= len(pids), rest.done)  # noqa: B023
        assert not rest.done()
        for kill, pids in zip((os.kill, os.killpg), before[:2], strict=True):  # without its worker, and with it
            for pid in pids:
                kill(pid, signal.SIGKILL)
        found.append(rest.result())
    verdicts = np.concatenate([each.non_tensor_batch["acc"] for each in found])
    assert len(verdicts) == len(rows)
    assert [row for row, acc in zip(rows, verdicts, strict=True) if acc != row[2]] == []
    assert not any(each.non_tensor_batch[name].any() for each in found for name in ("timed_out", "gold_unparseable"))
    assert torch.cat([each.batch["rm_scores"].sum(1) for each in found]).tolist() == [right for *_, right in rows]

    after = [judges_of(worker)[0] for worker in workers]
    assert set(before[2]) <= set(after[2]) and not set(after[0] + after[1]) & set(before[0] + before[1])
    asked = [worker.compute_score_batch.remote(batch_of(tokenizer, [(SLOW, "x", False)])) for worker in workers]
    for worker, answer in zip(workers, asked, strict=True):
        wait_for(lambda: judges_of(worker)[1] or ray.wait([answer], timeout=0)[0])  # noqa: B023
    assert running_judges()
    ray.shutdown()
    wait_for(lambda: not running_judges())
