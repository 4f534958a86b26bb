"""The tiny random model as the trainer of studies loads it."""

import pytest

from tests.studies.policies import data, policy, rollouts, two_layers  # noqa: F401  fixtures


@pytest.fixture(scope="module")
def model(tiny_run):
    """The tiny random model with its logits spread out, so that some tokens are likely and some are not."""
    import torch

    from studies import trainer

    model = trainer.load_model(tiny_run / "model", "cpu")
    with torch.no_grad():
        model.model.norm.weight.mul_(6)
    return model


@pytest.fixture(scope="module")
def tokenizer(tiny_run):
    from studies import trainer

    return trainer.AutoTokenizer.from_pretrained(tiny_run / "model")
