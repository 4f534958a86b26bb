"""The page of tokens: its figures against a direct computation, and the text of a model is always escaped."""

import math
import re
from html.parser import HTMLParser

import pytest
import torch

from studies.gradients import token_gradients
from studies.gradients.tokens import (
    Shown,
    Token,
    choose,
    main,
    parse_shaping,
    render_tokens,
    token_figures,
    token_pieces,
)
from studies.rollouts import Rollout
from tests.core.reference import published_weight
from tests.studies.policies import command


def test_figures_of_every_token(policy, rollouts):
    tokenizer, model = policy[0].tokenizer, policy[1]
    figures = token_figures(tokenizer, model, rollouts[:3], parse_shaping("sigmoid"))
    for one, rollout in zip(figures, rollouts[:3], strict=True):
        logits = model(torch.cat([rollout.prompt, rollout.response])[None]).logits[0].double()
        assert "".join(token.text for token in one.tokens) == tokenizer.decode(rollout.response)
        for t, (token, known) in enumerate(zip(rollout.response, one.tokens, strict=True)):
            q = torch.softmax(logits[len(rollout.prompt) - 1 + t], -1)
            p = q[token].item()
            weight = published_weight(p)
            assert known.prob == pytest.approx(p, abs=1e-6) and known.weight == pytest.approx(weight, abs=1e-5)
            assert known.entropy == pytest.approx(-sum(x * math.log(x) for x in q.tolist() if x > 0), abs=1e-5)
            assert known.plain == pytest.approx(abs(rollout.advantage) * (1 - p), abs=1e-6)
            assert known.gradient == pytest.approx(known.plain * weight, abs=1e-5)


def test_the_best_and_the_worst_of_each_group_are_shown_within_the_limit(rollouts):
    every = choose(rollouts, 4, 10**6)
    for better, worse in zip(every[::2], every[1::2], strict=True):
        group = next(
            rollouts[i : i + 4] for i in range(0, len(rollouts), 4) if torch.equal(rollouts[i].prompt, better.prompt)
        )
        advantages = [rollout.advantage for rollout in group]
        assert (better.advantage, worse.advantage) == (max(advantages), min(advantages)) and max(advantages) > 0
    assert len(choose(rollouts, 4, 1)) == 1
    assert sum(len(one.response) for one in choose(rollouts, 4, 60)) <= 60


def test_responses_without_a_difference_are_shown_too():
    rollouts = [Rollout(torch.zeros(2), torch.zeros(5), 0.0) for _ in range(8)]
    assert choose(rollouts, 4, 100) == [*rollouts[:2], *rollouts[4:6]]


class ByteTokenizer:
    """A token is a byte, as in byte-level vocabularies."""

    def decode(self, ids):
        return bytes(ids).decode("utf-8", errors="replace")


def test_a_character_of_several_tokens_comes_whole():
    ids = list("a ü 漢 b".encode())
    texts = token_pieces(ByteTokenizer(), ids)
    assert len(texts) == len(ids) and "".join(texts) == "a ü 漢 b" and "ü" in texts and "漢" in texts
    assert token_pieces(ByteTokenizer(), [*b"x", 0xE6]) == ["x", "\ufffd"]


class Collector(HTMLParser):
    """Tags and text of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, text):
        self.text.append(text)


def test_the_text_of_a_model_is_escaped_and_two_thousand_tokens_fit():
    attack = ["</span><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<|im_end|>", "\x00", "&amp;", "\n"]
    tokens = [Token(attack[i % 6], (i % 10) / 10, 1.0 + (i % 5) / 10, i / 2000, i / 2000, 0.5) for i in range(2000)]
    content = render_tokens("<b>title</b>", "sigmoid", [Shown("<i>prompt</i>", -1.0, tokens)], {"share": "50 %"})
    page = Collector()
    page.feed(content)
    names = [tag for tag, _ in page.tags]
    assert names.count("span") == 2000 and not {"script", "img", "b", "i"} & set(names)
    assert "</span><script>alert(1)</script>" in page.text and "\x00" not in content
    assert not re.search(r"https?://", content)
    shares = [attributes["style"] for tag, attributes in page.tags if tag == "span"]
    assert shares[3].startswith("--p:0.700;--w:0.250;")


def test_the_program_writes_the_page_alone(data, tmp_path, capsys):
    assert main(command(data, tmp_path / "out")) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"tokens.html"}
    assert "tokens.html" in capsys.readouterr().out


def test_equal_rewards_are_shown_too(data, tmp_path):
    few = {"prompts": 2, "samples": 2, "max_tokens": 3}
    with pytest.raises(ValueError, match="equal rewards"):
        token_gradients.main(command(data, tmp_path, **few))
    assert main(command(data, tmp_path, **few)) == 0
    page = Collector()
    page.feed((tmp_path / "tokens.html").read_text())
    assert [tag for tag, _ in page.tags].count("span") == 12
    assert "A = 0" in " ".join(page.text) and not any("share of" in text for text in page.text)
