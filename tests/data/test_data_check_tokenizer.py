"""`check_files`: what a tokenizer tells of the prompts, which is their lengths, and what its chat template refuses."""

import json

import pytest

from tests.data.checked_files import clean, report, results, row, user, write

CHAT_TEMPLATE = (
    "{% for m in messages %}{% if 'forbidden' in m['content'] %}{{ raise_exception('not this word') }}{% endif %}"
    "<|turn|>{{ m['role'] }}\n{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Directory of a tokenizer in which every byte is a token, and <|turn|> is one."""
    import tokenizers
    import transformers

    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=257, initial_alphabet=alphabet, special_tokens=["<|turn|>"], show_progress=False
    )
    model.train_from_iterator([], trainer)
    directory = tmp_path_factory.mktemp("tokenizer")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=model, chat_template=CHAT_TEMPLATE)
    fast.save_pretrained(directory)
    return directory


def test_prompt_lengths_are_those_of_the_rendered_chat(tmp_path, tokenizer):
    contents = ["x" * n for n in (10, 20, 30, 40, 100)]
    data = write(tmp_path / "data.parquet", [row(i, prompt=user(content)) for i, content in enumerate(contents)])
    made = report(data, tokenizer=tokenizer, max_prompt_length=57, no_rewards=True)
    # <|turn|>user\n ... \n<|turn|>assistant\n is two special tokens and 16 bytes.
    assert made.files == [f"{data}: 5 rows, train; tokens of a prompt: min 28, median 48, p95 118, max 118"]
    found = {check.name: check for check in made.checks}
    assert (found["prompt length"].status, found["prompt length"].count) == ("warning", 2)
    assert "data.parquet row 3 and 1 more: longer than 57 tokens" in found["prompt length"].examples[0]
    assert found["chat template"].status == "ok"
    fits = results(data, tokenizer=tokenizer, max_prompt_length=118, no_rewards=True)
    assert fits["prompt length"].status == "ok"


def test_a_prompt_that_the_chat_template_refuses_is_an_error(tmp_path, tokenizer):
    rows = clean()
    rows[4]["prompt"] = user("a forbidden word")
    found = results(write(tmp_path / "data.parquet", rows), tokenizer=tokenizer, no_rewards=True)["chat template"]
    assert (found.status, found.count) == ("error", 1)
    assert found.examples == ["data.parquet row 4: the chat template refuses the prompt: not this word"]


def test_a_limit_without_a_tokenizer_is_said_to_be_unchecked(tmp_path):
    made = report(write(tmp_path / "a.parquet", clean()), max_prompt_length=1)
    found = {check.name: check for check in made.checks}["prompt length"]
    assert (found.status, "--tokenizer" in found.note, "tokens" in made.files[0]) == ("not checked", True, False)


@pytest.mark.parametrize(("content", "reason"), [(None, "is not a directory"), ({}, "no tokenizer could be loaded")])
def test_a_tokenizer_that_cannot_be_loaded_is_wrong_input(tmp_path, content, reason):
    if content is not None:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "config.json").write_text(json.dumps(content))
    data = write(tmp_path / "data.parquet", clean())
    with pytest.raises(ValueError, match=reason):
        report(data, tokenizer=tmp_path / "model")
