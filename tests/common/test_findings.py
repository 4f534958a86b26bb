"""Findings as they are shown: many with the same reason are one."""

from verl_trgrpo.common.findings import grouped


def test_many_messages_with_the_same_reason_are_one_with_a_line_for_each():
    keys = [f"{place}: unknown key; set {place}.other" for place in "abcdef"]
    [message, other] = grouped([keys[0], "e=1: too small; set e=2", *keys[1:]])
    assert message.splitlines() == [
        "unknown key (6 times):",
        *(f"    {place}: set {place}.other" for place in "abcdef"),
    ]
    assert other == "e=1: too small; set e=2"


def test_a_few_messages_are_shown_as_they_are():
    for messages in (["a: wrong; set b", "c: wrong; set d"], ["same"] * 5, []):
        assert grouped(messages) == messages
