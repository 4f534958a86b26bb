import math
import random

import pytest
import torch

from verl_trgrpo.tiny.puzzles import supervised, training
from verl_trgrpo.tiny.puzzles.demonstrations import varied_puzzles, warm_start_puzzles
from verl_trgrpo.tiny.puzzles.model import new_model
from verl_trgrpo.tiny.puzzles.training import WarmStartOptions, train

TINY = WarmStartOptions(puzzles=20, steps=2, batch_size=2, test_puzzles=1)


@pytest.fixture(scope="module")
def trained():
    return train(TINY)


def test_all_options_out_of_range_are_reported_at_once():
    with pytest.raises(ValueError) as caught:
        WarmStartOptions(seed=-1, steps=0, batch_size=0, skill_share=1.5, final_careful=-0.1, threads=0)
    message = str(caught.value)
    for part in (
        "seed is -1",
        "steps is 0",
        "batch_size is 0",
        "skill_share is 1.5",
        "final_careful is -0.1",
        "threads",
    ):
        assert part in message
    assert message.count("must be") == 6


def test_the_model_is_a_small_qwen2_that_cpu_kernels_can_serve(trained):
    _, model = trained
    config = model.config
    assert config.model_type == "qwen2"
    assert config.hidden_size // config.num_attention_heads in (32, 64)
    assert config.tie_word_embeddings
    assert model.num_parameters() < 1_000_000
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_training_lowers_the_loss(trained):
    tokenizer, _ = trained
    rng = random.Random(5)
    pools = {2: warm_start_puzzles(2, 5, 0), 3: warm_start_puzzles(3, 5, 0)}
    options = WarmStartOptions(steps=1, batch_size=16, skill_careful=1.0)
    ((input_ids, labels),) = training._batches(tokenizer, varied_puzzles(pools, {2: 0.5, 3: 0.5}, rng), options, rng)
    losses = {}
    for steps in (1, 30):
        _, model = train(WarmStartOptions(puzzles=20, steps=steps, batch_size=4))
        with torch.no_grad():
            losses[steps] = supervised._loss(model, input_ids, labels).item()
    # Without training the loss stays where it is.
    assert losses[30] < 0.8 * losses[1]


def test_batches_label_the_response_alone(trained):
    tokenizer, _ = trained
    rng = random.Random(0)
    pools = {2: warm_start_puzzles(2, 5, 0), 3: warm_start_puzzles(3, 5, 0)}
    options = WarmStartOptions(steps=5, batch_size=4)
    batches = list(training._batches(tokenizer, varied_puzzles(pools, {2: 0.5, 3: 0.5}, rng), options, rng))
    assert len(batches) == 5
    for input_ids, labels in batches:
        assert input_ids.shape == labels.shape
        assert len(input_ids) == 4
        for ids, targets in zip(input_ids, labels, strict=True):
            labelled = targets != -100
            assert torch.equal(ids[labelled], targets[labelled])
            response = tokenizer.decode(targets[labelled])
            assert response.startswith("<think>")
            assert response.endswith("</answer><|im_end|>")
            (first,) = labelled.nonzero()[0].tolist()
            prompt = tokenizer.decode(ids[:first])
            assert prompt.startswith("<|im_start|>user\n(1) ")
            assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")
            rest = ids[first + int(labelled.sum()) :]
            assert (rest == tokenizer.pad_token_id).all()


def test_careless_demonstrations_come_in_the_last_part(trained):
    tokenizer, _ = trained
    rng = random.Random(0)
    pools = {2: warm_start_puzzles(2, 5, 0), 3: warm_start_puzzles(3, 5, 0)}
    draw = training.BATCHES_PER_DRAW
    options = WarmStartOptions(steps=2 * draw, batch_size=2, skill_share=0.5, skill_careful=1, final_careful=0)
    batches = list(training._batches(tokenizer, varied_puzzles(pools, {2: 0.5, 3: 0.5}, rng), options, rng))
    guesses = ["guess" in tokenizer.decode(row) for input_ids, _ in batches for row in input_ids]
    assert guesses == [False] * (2 * draw) + [True] * (2 * draw)


def test_loss_is_a_sum_over_labels_that_ignores_padding(trained):
    tokenizer, _ = trained
    torch.manual_seed(0)
    model = new_model(tokenizer)
    input_ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 0]])
    labels = torch.tensor([[-100, -100, 7, 8], [-100, 10, 11, -100]])
    total = 0.0
    for ids, first in (([5, 6, 7, 8], 2), ([9, 10, 11], 1)):
        log_probs = model(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
        total -= sum(log_probs[i - 1, ids[i]].item() for i in range(first, len(ids)))
    loss = supervised._loss(model, input_ids, labels)
    assert loss.item() == pytest.approx(total / (2 * supervised.TYPICAL_RESPONSE), rel=1e-5)


@pytest.mark.parametrize(("step", "share"), [(0, 1 / 50), (49, 1.0), (500, 0.51), (1000, 0.02)])
def test_learning_rate_warms_up_and_falls_as_a_cosine(step, share):
    # Far from the ends the warm-up factor is 1 and the cosine share is 0.02 + 0.98 * (1 + cos(pi * step / 1000)) / 2.
    cosine = 0.02 + 0.98 * (1 + math.cos(math.pi * step / 1000)) / 2
    factor = supervised._learning_rate_factor(step, 1000)
    assert factor == pytest.approx(min(1, (step + 1) / 50) * cosine)
    assert factor == pytest.approx(share, abs=0.01)


def test_the_muon_optimizer_gets_matrices_and_nothing_else(trained):
    _, model = trained
    muon, adam = supervised._optimizers(model)
    in_muon = [weight for group in muon.param_groups for weight in group["params"]]
    in_adam = [weight for group in adam.param_groups for weight in group["params"]]
    assert isinstance(muon, torch.optim.Muon)
    assert len(in_muon) == 4 * 7  # q, k, v, o, gate, up and down in each of four layers
    assert {id(weight) for weight in in_muon + in_adam} == {id(weight) for weight in model.parameters()}
    assert len(in_muon) + len(in_adam) == len(list(model.parameters()))
    assert any(weight is model.get_input_embeddings().weight for weight in in_adam)


def test_the_tokenizer_knows_the_chat_roles(trained):
    tokenizer, _ = trained
    assert all(len(tokenizer.encode(role)) == 1 for role in ("user", "assistant", "system"))
