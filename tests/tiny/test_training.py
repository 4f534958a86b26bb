"""The training loop: what has labels, in which order demonstrations come, the loss, the optimizers, and that it learns."""

import random
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
import torch

from verl_trgrpo.tiny import training
from verl_trgrpo.tiny.model import new_model
from verl_trgrpo.tiny.tokenizer import TAG_TOKENS
from verl_trgrpo.tiny.training import Demonstration, Segment, WarmStart, train


@dataclass(frozen=True)
class Counting(WarmStart):
    """A world that costs nothing: numbers, with something to read in between."""

    world = "counting"
    vocabulary = 300
    added_tokens = TAG_TOKENS
    tokenizer_examples = 20
    tokenizer_careful = 0.5

    def demonstrations(self, rng, shares):
        for number, share in zip(count(), shares, strict=False):
            word = "careful" if rng.random() < share else "careless"
            segments = [Segment(f"<think>{word}</think>", True), Segment("read", False), Segment("<answer>1", True)]
            yield Demonstration([{"role": "user", "content": f"{number} " * (number % 3)}], segments)


@pytest.fixture(scope="module")
def trained():
    return train(Counting(out=Path(), steps=1, batch_size=2))


def batches(trained, options):
    return [*training._batches(trained[0], options, random.Random(0))]


def test_all_options_out_of_range_are_reported_at_once():
    with pytest.raises(ValueError) as caught:
        Counting(out=Path(), seed=-1, steps=0, batch_size=0, final_careful=1.5)
    for part in ("seed=-1", "steps=0", "batch_size=0", "final_careful=1.5"):
        assert part in str(caught.value)


def test_training_lowers_the_loss(trained):
    (batch,) = batches(trained, Counting(out=Path(), steps=1, batch_size=8))
    _, model = train(Counting(out=Path(), steps=20, batch_size=4))
    with torch.no_grad():
        assert training.summed_loss(model, *batch) < 0.8 * training.summed_loss(trained[1], *batch)


def test_batches_label_what_the_model_writes_and_nothing_else(trained):
    tokenizer, _ = trained
    found = batches(trained, Counting(out=Path(), steps=5, batch_size=4))
    assert len(found) == 5
    for input_ids, labels in found:
        assert input_ids.shape == labels.shape
        assert len(input_ids) == 4
        for ids, targets in zip(input_ids, labels, strict=True):
            labelled = targets != training.NO_LABEL
            assert torch.equal(ids[labelled], targets[labelled])
            assert tokenizer.decode(targets[labelled]).endswith("</think><answer>1<|im_end|>")
            text, _, padding = tokenizer.decode(ids).partition("1<|im_end|>")
            assert text.startswith("<|im_start|>user\n") and text.endswith("</think>read<answer>")
            assert not padding.replace("<|endoftext|>", "")


def test_careless_demonstrations_come_in_the_last_part(trained):
    tokenizer, _ = trained
    steps = 5 * training.BATCHES_PER_DRAW  # of which four fifths are the first part
    found = batches(trained, Counting(out=Path(), steps=steps, batch_size=1, final_careful=0.0))
    careless = ["careless" in tokenizer.decode(input_ids[0]) for input_ids, _ in found]
    assert all(careless[steps * 4 // 5 :])
    assert sum(careless[: steps * 4 // 5]) < 0.2 * steps


def test_loss_is_a_sum_over_labels_that_ignores_padding(trained):
    torch.manual_seed(0)
    model = new_model(trained[0])
    input_ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 0]])
    labels = torch.tensor([[-100, -100, 7, 8], [-100, 10, 11, -100]])
    total = 0.0
    for ids, first in (([5, 6, 7, 8], 2), ([9, 10, 11], 1)):
        log_probs = model(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
        total -= sum(log_probs[i - 1, ids[i]].item() for i in range(first, len(ids)))
    assert training.summed_loss(model, input_ids, labels).item() == pytest.approx(total, rel=1e-5)
