"""The TRL example: its loss against this project's own, and a training on a tiny model."""

import pytest
import torch

from tests.docs.test_pages import python_blocks
from tests.scripts import ROOT
from verl_trgrpo.core import ClipRange, TokenWeighting, compute_policy_loss, make_shaping

trl = pytest.importorskip("trl", reason='trl is not installed: pip install -e ".[trl]"')


@pytest.fixture(scope="module")
def trainer_class():
    from examples.trl_trainer import ShapedGRPOTrainer

    return ShapedGRPOTrainer


def letters(completions, **_):
    return [sum(map(str.isalpha, completion[0]["content"])) / 10 for completion in completions]


@pytest.fixture
def make_trainer(trainer_class, tiny_run, tmp_path, datasets_cache):
    def make(kind=trainer_class, reward=letters, **options):
        from datasets import Dataset
        from pandas import read_parquet
        from transformers import AutoModelForCausalLM

        table = read_parquet(tiny_run / "train.parquet")["prompt"]
        prompts = [{"prompt": list(row), "answer": str(number)} for number, row in enumerate(table)]
        config = trl.GRPOConfig(
            output_dir=str(tmp_path), per_device_train_batch_size=4, num_generations=2, max_completion_length=8, max_steps=4,
            num_iterations=2, learning_rate=1e-3, logging_steps=1, report_to="none", use_cpu=True, bf16=False, seed=1,
            loss_type="grpo", disable_tqdm=True, save_strategy="no",
        )  # fmt: skip
        model = AutoModelForCausalLM.from_pretrained(tiny_run / "model", dtype=torch.float32)
        return kind(model, reward, args=config, train_dataset=Dataset.from_list(prompts), **options)

    return make


def batch_of(model):
    torch.manual_seed(0)
    ids = torch.randint(10, 300, (4, 12))
    mask = torch.ones(4, 7, dtype=torch.long)
    mask[1, 4:] = mask[3, 2:] = 0
    inputs = {
        "prompt_ids": ids[:, :5], "prompt_mask": torch.ones(4, 5, dtype=torch.long), "completion_ids": ids[:, 5:],
        "completion_mask": mask, "advantages": torch.tensor([1.5, -0.5, 0.25, -1.0]), "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    full = torch.cat([inputs["prompt_mask"], mask], 1)
    logits = model(ids, attention_mask=full).logits[:, 4:-1].float()
    log_prob = torch.log_softmax(logits, -1).gather(-1, inputs["completion_ids"][..., None])[..., 0]
    inputs["old_per_token_logps"] = (log_prob + 0.3 * torch.randn(4, 7)).detach()
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    return inputs, log_prob, entropy


@pytest.mark.parametrize(
    ("shaping", "parameters"),
    [("uniform", {}), ("sigmoid", {}), ("linear", {"alpha": 0.9}), ("top_entropy", {"share": 0.5})],
)
def test_loss_and_gradient_are_those_of_the_weighted_loss(shaping, parameters, make_trainer):
    trainer = make_trainer(shaping=shaping, options=parameters)
    trainer.current_gradient_accumulation_steps = 1  # set by train()
    model = trainer.model.train()
    inputs, log_prob, entropy = batch_of(model)
    expected = compute_policy_loss(
        log_prob, old_log_prob=inputs["old_per_token_logps"], response_mask=inputs["completion_mask"],
        advantages=inputs["advantages"][:, None].expand_as(log_prob), entropy=entropy.detach(),
        weighting=TokenWeighting(make_shaping(shaping, **parameters)), clip=ClipRange(0.2, 0.2, dual=1e9),
        loss_agg_mode="seq-mean-token-mean",
    ).loss  # fmt: skip
    (gradient,) = torch.autograd.grad(expected, model.get_input_embeddings().weight)
    loss = trainer.compute_loss(model, inputs)
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(model.get_input_embeddings().weight.grad, gradient, rtol=1e-3, atol=1e-6)
    assert inputs["advantages"].shape == (4,)  # the batch is used again by the next iteration


def test_it_trains(make_trainer):
    trainer = make_trainer()
    before = trainer.model.get_input_embeddings().weight.clone()
    trainer.train()
    losses = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    assert len(losses) == 4 and max(losses) > 0
    assert not torch.equal(before, trainer.model.get_input_embeddings().weight)


def test_the_judge_is_a_reward_as_its_page_shows(make_trainer):
    scope = {}
    exec(python_blocks("judge.md")[1], scope)
    reward, given = scope["mathematics"], []

    def recorded(completions, **columns):
        given.append(reward(completions=completions, **columns))
        return given[-1]

    def said(content):
        return [{"role": "assistant", "content": content}]

    asked = [{"role": "user", "content": "What is 2 + 2?"}]
    golds, answers = ["4", "4", "so the answer is unclear"], map(said, (r"\boxed{4}", r"\boxed{5}", r"\boxed{5}"))
    assert reward(prompts=[asked] * 3, completions=[*answers], answer=golds) == [1.0, 0.0, None]
    trainer = make_trainer(kind=trl.GRPOTrainer, reward=recorded)
    trainer.train()
    assert {value for values in given for value in values} == {0.0}, "a random model knows no answer"
    means = [entry["rewards/recorded/mean"] for entry in trainer.state.log_history if "rewards/recorded/mean" in entry]
    assert means == [0.0] * 2, "each batch makes two steps"


def test_it_is_short():
    assert len((ROOT / "examples/trl_trainer.py").read_text().splitlines()) <= 40
