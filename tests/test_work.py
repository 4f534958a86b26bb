"""The counts by which other tests judge whether work grows with a length or with its square."""

import pytest

from tests.pattern_steps import grows
from tests.work import counted

PLANTED = """
import re
from functools import cache
A, B = re.compile("<a>"), re.compile("</a>")
def linear(text):
    total, at = 0, 0
    while (match := A.search(text, at)) is not None:
        at = match.end()
        total += len(text[at:at + 2])
    return total + len(text.replace("<", "")) + sum(1 for c in text if c in "ab")
def a_loop_in_a_loop(text):
    return sum(1 for a in text for b in text)
def slices(text):
    while text:
        text = text[1:]
def finds(text):
    return [text.find("!", at) for at in range(len(text))]
def searches(text):
    return [B.search(text, match.end()) for match in A.finditer(text)]
def inline(text):
    for _ in text:
        re.sub("a", "", text)
def adds(text):
    out = ""
    for c in text:
        out = out + c
    return out
def members(text):
    return [c for c in text if "?" in text]
class Reader:
    @staticmethod
    @cache
    def pattern(text):
        return re.search("a+b", "a" * len(text))
    @property
    def length(self):
        return 1
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("work")
    (directory / "planted_work.py").write_text(PLANTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        import planted_work

        yield planted_work


@pytest.mark.parametrize(
    ("name", "square"),
    [("linear", False), *((name, True) for name in (
        "a_loop_in_a_loop", "slices", "finds", "searches", "inline", "adds", "members", "pattern"))],
)  # fmt: skip
def test_work_that_grows_with_the_square_is_found(planted, name, square):
    function = getattr(planted, name, None) or planted.Reader.pattern
    with counted("planted_work") as work:
        assert grows(lambda size: work.of(function, "<a>" * (size // 3))) is square
    assert function("<a>") == function("<a>") and work.count  # and it is as before
    before = work.count
    function("<a><a>")
    assert work.count == before
