"""The tiny random model as the single-file trainer loads it."""

import pytest


@pytest.fixture(scope="module")
def model(tiny_run):
    """The tiny random model with its logits spread out, so that some tokens are likely and some are not."""
    import torch

    from tests.recipes.minimal_trainer_script import trainer

    model = trainer.load_model(tiny_run / "model", "cpu")
    with torch.no_grad():
        model.model.norm.weight.mul_(6)
    return model


@pytest.fixture(scope="module")
def tokenizer(tiny_run):
    from tests.recipes.minimal_trainer_script import trainer

    return trainer.AutoTokenizer.from_pretrained(tiny_run / "model")
