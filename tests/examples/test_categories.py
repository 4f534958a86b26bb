"""The choices of the study of categories: one right word of three, and other words to test with than those to train with."""

import pyarrow.parquet

from examples.makers import categories, demonstrations
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.answer_form import reward_input


def test_the_answer_is_the_only_word_of_its_kind_and_test_words_are_held_out():
    kinds = {word: kind for kind, words in categories._KINDS.items() for word in words.split()}
    used = {}
    for name in ("train", "warm_start", "test"):
        found = categories.choices(name, 100)
        for choice in found:
            (right,) = (word for word in choice.words if kinds[word] in choice.question)
            assert right == choice.answer and all(word in choice.question for word in choice.words)
        used[name] = {word for choice in found for word in choice.words}
    assert len({choice.question for choice in found}) == len(found)
    assert not used["test"] & (used["train"] | used["warm_start"])


def test_demonstrations_have_the_form_that_the_reward_reads_and_choose_nearly_at_random(tmp_path):
    shown = demonstrations.choice_demonstrations(0)
    answers = {choice.question: choice.answer for choice in categories.choices("warm_start", categories.WARM_START)}
    said = [(one.segments[0].text, answers[one.messages[1]["content"]], one.messages) for one in shown]
    right = [compute_score("math", text, answer, reward_input({}, messages))["acc"] for text, answer, messages in said]
    assert 0.33 < sum(right) / len(right) < 0.5
    assert categories.build_dataset(tmp_path)
    assert pyarrow.parquet.read_table(tmp_path / "test.parquet").num_rows == categories.TEST
