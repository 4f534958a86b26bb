"""When two short answers are the same, and how much they overlap: the measures of SQuAD.

Normalisation is that of SQuAD's evaluation, in its order: lower case, no ASCII punctuation, no articles, single spaces.
Accents, Unicode punctuation and compatibility characters are left as they are, for comparability with published figures.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Return `text` in lower case, without ASCII punctuation and English articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def comparison_key(text: str) -> str:
    """Return what exact match compares: the normalised text, or where nothing is left of it the text itself.

    The latter, in lower case and with single spaces, lets a gold such as "The" or "+" be answered, and keeps an empty
    answer from matching it. The two kinds of key never meet: a normalised text holds no punctuation or lone article.
    """
    return normalize_answer(text) or " ".join(text.lower().split())


@dataclass(frozen=True)
class Match:
    """exact: the answer equals one of the golds. f1: the best token F1 with any of them, 0.0 to 1.0."""

    exact: bool
    f1: float


def match_answer(answer: str, golds: Iterable[str]) -> Match:
    """Compare `answer` with each gold by their comparison keys. An empty answer matches nothing."""
    key = comparison_key(answer)
    keys = {comparison_key(gold) for gold in golds} - {""}
    if not keys:
        return Match(exact=False, f1=0.0)
    if key in keys:
        return Match(exact=True, f1=1.0)
    tokens = Counter(key.split())
    return Match(exact=False, f1=max(_token_f1(tokens, Counter(gold.split())) for gold in keys))


def _token_f1(answer: Counter[str], gold: Counter[str]) -> float:
    common = sum(min(count, answer[token]) for token, count in gold.items())
    return 2 * common / (answer.total() + gold.total())
