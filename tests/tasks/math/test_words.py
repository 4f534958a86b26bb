"""Questions of differently typeset files have the same words; other problems have others."""

import pytest

from verl_trgrpo.curation.decontaminate import words_of

SAME = {
    "commands": (
        r"Find $n \leqslant \dfrac12$ with $a_1, \dots, a_n$.",
        r"Find \( n \le \frac{1}{2} \) with $a_{1},\ldots,a_{n}$.",
    ),
    "letters of a formula": ("$abc = 2 n^{2}$ for all $n$", r"\[a b c=2n^2\] for all \(n\)"),
    "layout": (r"$\left| x \right| \quad \text{if } x<0$", "$|x|$ if $x < 0$"),
    "environments": (r"\begin{align*} ab &= 8, \\ c &= 16. \end{align*}", "$ab=8$, $c=16$."),
    "markup of forums": (r"[b](i)[/b] x \equal{} y \plus{} 1 [i]", "(i) $x = y + 1$"),
    "characters": ("x² ≥ √2 · π, 1,000 −5", r"$x^{2} \geq \sqrt{2} \cdot \pi$, $1{,}000$ $-5$"),
    "tags of equations": (r"$$f(xy) = x \tag{1}$$", "$f(x y)=x$"),
    "case and punctuation": ('"Is THIS so?"', "is this so"),
}


@pytest.mark.parametrize("case", SAME)
def test_typesetting_makes_no_difference(case):
    one, other = SAME[case]
    assert words_of(one) == words_of(other)


def test_words_numbers_and_signs():
    words = words_of(r"Let $x_1 + \frac{3.5}{y} < ab$; say why, e.g. in 2 lines.")
    assert " ".join(words) == "let x 1 + frac 3.5 y < a b say why e g in 2 lines"


def test_scripts_without_spaces_have_a_word_for_each_character():
    assert words_of("求方程 x") == ["求", "方", "程", "x"]


@pytest.mark.parametrize(
    ("one", "other"), [("$x - 1$", "$x + 1$"), ("$x < 2$", "$x = 2$"), ("3.5", "35"), ("$2^n$", "$3^n$")]
)
def test_other_mathematics_has_other_words(one, other):
    assert words_of(one) != words_of(other)
