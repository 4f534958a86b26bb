"""The word behind "Answer:" decides, and the rules that know it leave out the gradient of the tokens that they say."""

import pytest
import torch

from studies.decisions import decision_mask
from tests.studies.test_trainer_gradients import own_gradients, saved_batch  # noqa: F401
from tests.studies.trainer_runs import options


def mask_of(tokenizer, texts):
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] for text in texts]
    width = max(map(len, ids))
    responses = torch.tensor([one + [tokenizer.eos_token_id] * (width - len(one)) for one in ids])
    mask = torch.arange(width) < torch.tensor([len(one) for one in ids])[:, None]
    return responses, mask, decision_mask(responses, mask, tokenizer)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Sure.\nAnswer: knight", "knight"),
        ("Answer: knave.", "knave"),
        ("Answer: knave or Answer: knight", "knight"),
        ("A knight.", ""),
        ("Answer:", ""),
    ],
)
def test_the_tokens_of_the_word_behind_the_last_answer_decide(tokenizer, text, word):
    responses, mask, decides = mask_of(tokenizer, [text, "Answer: a much longer answer of many words"])
    assert tokenizer.decode(responses[0, decides[0]]).strip() == word
    assert not (decides & ~mask).any()


@pytest.mark.parametrize("arm", ["oracle", "without_rare_wording", "without_rare_decisions"])
def test_rules_leave_out_the_gradient_of_the_tokens_that_they_say(tiny_run, model, saved_batch, arm):  # noqa: F811
    rows, batch, advantages = saved_batch
    place = torch.arange(batch.mask.shape[1])
    decides = (place % 2 == 0) & batch.mask
    found, recorder = own_gradients(model, saved_batch, options(tiny_run, arm=arm), decides=decides)
    with torch.no_grad():
        probs = torch.exp(batch_log_probs(model, batch, options(tiny_run)))
    kept = {
        "oracle": decides,
        "without_rare_wording": decides | (probs >= 0.25),
        "without_rare_decisions": ~decides | (probs >= 0.25),
    }[arm]
    assert 0 < kept[batch.mask].sum() < batch.mask.sum()
    expected, plain = own_gradients(model, (rows, batch, advantages * kept), options(tiny_run, arm="grpo"))
    assert found["actor/loss"] == pytest.approx(expected["actor/loss"], rel=1e-6)
    for one, other in zip(recorder.gradients, plain.gradients, strict=True):
        torch.testing.assert_close(one, other)


def batch_log_probs(model, batch, options):
    from studies.passes import trained_log_probs

    return trained_log_probs(model, batch, options, torch.ones(len(batch.mask), dtype=torch.bool))
