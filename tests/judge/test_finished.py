r"""An answer of the right value is finished: it is not the question again, and has the form that is asked for."""

import pytest

from verl_trgrpo.core.metrics import group_metrics
from verl_trgrpo.judge import judge_answer
from verl_trgrpo.judge.question import read_question
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.reward_input import reward_input

# Question, gold, answers that are right, and answers of the same value that are not.
ASKED = {
    "factor": (
        "Factor $t^2-49$ completely.", "(t-7)(t+7)", ["(t+7)(t-7)", "(7+t)(t-7)", "-(7-t)(t+7)"],
        ["t^2-49", "t^2-7^2", "-49+t^2", "t(t-7)+7(t-7)"],
    ),
    "factor all": ("Factor $x^4-1$.", "(x-1)(x+1)(x^2+1)", ["(x^2+1)(x-1)(x+1)"], ["(x^2-1)(x^2+1)", "x^4-1"]),
    "factor a square": ("Factorize $x^2+2x+1$.", "(x+1)^2", ["(x+1)(x+1)"], ["x^2+2x+1", "x(x+2)+1"]),
    "factor of a number is no request": ("Which factor of $36$ is $x$ times $x+1$?", "x(x+1)", ["x^2+x"], []),
    "expand": ("Expand $(x+2)(x+3)$.", "x^2+5x+6", ["6+5x+x^2"], ["(x+2)(x+3)", "(3+x)(x+2)", "x(x+3)+2(x+3)"]),
    "simplify": (
        r"Simplify $\sqrt{180}$.", r"6\sqrt5", [r"\sqrt{5}\cdot6"], [r"\sqrt{180}", r"2\sqrt{45}", r"3\sqrt{20}"],
    ),
    "rationalize": (
        r"Rationalize the denominator of $\frac{5}{\sqrt{125}}$.", r"\frac{\sqrt5}{5}", [r"\frac15\sqrt5"],
        [r"\frac{5}{\sqrt{125}}", r"\frac{1}{\sqrt5}"],
    ),
    "a value": (
        r"What is $\cos 210^\circ$?", r"-\frac{\sqrt3}{2}", [r"-\frac12\sqrt3", r"-\sqrt{\frac34}"],
        [r"\cos 210^\circ", r"-\cos 30^\circ", r"-\sin\frac{\pi}{3}"],
    ),
    "an angle": (r"Compute $\arcsin\frac12$.", r"\frac{\pi}{6}", [r"\pi/6"], [r"\arcsin\frac12", r"\arccos\frac{\sqrt3}{2}"]),
    "functions that the gold leaves": ("Solve $2^x=3$.", r"\log_2 3", [r"\frac{\ln 3}{\ln 2}"], []),
    "like terms": ("Simplify $2w+4w+6w-5w+10w$.", "17w", [r"17\cdot w"], ["2w+4w+6w-5w+10w", "12w+5w", "20w-3w"]),
    "a fraction in lowest terms": (
        r"Express $0.58\overline{3}$ as a common fraction.", r"\frac{7}{12}", ["7/12"], [r"\frac{84}{144}", r"0.58\overline{3}"],
    ),
    "a fraction that need not be reduced": ("What is the slope of the line?", r"\frac{7}{12}", [r"\frac{84}{144}"], []),
    "a fraction that the gold does not reduce": ("What is the slope?", r"\frac{84}{144}", [r"\frac{7}{12}"], []),
    "a decimal": (r"Express $\frac38$ as a decimal.", "0.375", [".375", "0.3750"], [r"\frac38", r"\frac{6}{16}"]),
    "a mixed number": (r"Write $\frac{14}{11}$ as a mixed number.", r"1\frac{3}{11}", ["1 3/11"], [r"\frac{14}{11}"]),
    "scientific notation": (
        r"Write $(3\times10^5)(4\times10^{-2})$ in scientific notation.", r"1.2\times10^4", [r"1.2\cdot10^{4}"],
        [r"12\times10^3", "12000", r"0.12\times10^{5}"],
    ),
    "scientific notation of a small number": (
        "Give $0.00045$ in scientific notation.", r"4.5\times10^{-4}", [r"4.5 \times 10^{-4}"], [r"45\times10^{-5}"],
    ),
    "standard form of a large number": (
        "Write $45000$ in standard form.", r"4.5\times10^4", [r"4.5\cdot10^{4}"], [r"45\times10^3", "45000", r"0.45\times10^5"],
    ),
    "a ratio": (
        "What is the ratio of boys to girls in simplest form?", "2:3", ["2 to 3", r"2\text{ to }3", r"\frac23"], [r"\frac46"],
    ),
    "a fraction as a ratio": ("What is the ratio in lowest terms?", r"\frac23", ["2:3"], ["4:6"]),
    "a ratio that need not be reduced": ("What is the ratio?", r"\frac23", ["2:3", "4:6", "4 to 6"], []),
    "a ratio that the gold does not reduce": ("What is the ratio in simplest form?", "4:6", ["2:3", r"\frac46"], []),
    "a sign in front of a fraction": (
        "What is the sum of the series with the ratio $x$?", r"\frac{1}{1-x}", [r"-\frac{1}{x-1}", r"\frac{-1}{x-1}"],
        [r"-1\cdot\frac{1}{x-1}", r"-\frac{1\cdot1}{x-1}"],
    ),
    "a sign in a base or an exponent": (
        "What is the general term?", r"\frac{(-1)^{n+1}}{n}", [r"\frac{(-1)^{n-1}}{n}"], [],
    ),
    "a matrix": (
        r"Compute $\begin{pmatrix}3&0\\1&2\end{pmatrix}+\begin{pmatrix}-5&-7\\4&-9\end{pmatrix}$.",
        r"\begin{pmatrix}-2&-7\\5&-7\end{pmatrix}", [r"\begin{bmatrix}-2&-7\\5&-7\end{bmatrix}"],
        [r"\begin{pmatrix}3&0\\1&2\end{pmatrix}+\begin{pmatrix}-5&-7\\4&-9\end{pmatrix}"],
    ),
    "an equation": ("Write $2x-y+3=0$ in slope-intercept form.", "y=2x+3", ["y=3+2x", "2x+3"], ["2x-y+3=0", "0=2x-y+3"]),
    "an equation for a number": ("Let $3x+4y=10$. Find the minimum of $x^2+16y^2$.", "10", ["10", "x^2+16y^2=10"], ["3x+4y=10"]),
    "an inequality": (
        "Solve $2x+3>7$.", "x>2", ["2<x", r"(2,\infty)"], ["2x+3>7", "7<2x+3", "3+2x>7"],
    ),
    "an inequality to be solved for an interval": (
        r"Solve $|x|\le 3$. Use interval notation.", "[-3,3]", [r"-3\le x\le 3"], [r"|x|\le 3"],
    ),
    "an inequality of the question that is solved": ("Let $x>1$. Where is $x^2>x$?", r"(1,\infty)", ["x>1", "1<x"], []),
    "an inequality that the gold has, too": ("Is $x^2<4$ or $x^2>4$ true?", "x^2<4", ["4>x^2"], []),
    "a percentage as a decimal": (r"Convert $75\%$ to a decimal.", "0.75", [".75"], [r"75\%"]),
    "a decimal as a percentage": ("Write $0.75$ as a percent.", r"75\%", ["75"], ["0.75"]),
    "the gold stands in the question": ("Is $x^2+1$ or $x^2-1$ irreducible?", "x^2+1", ["x^2+1", "1+x^2"], []),
    "a polar form": (r"Write $1+i\sqrt3$ in polar form.", r"2e^{i\pi/3}",
                     [r"2(\cos\frac{\pi}{3}+i\sin\frac{\pi}{3})"], [r"1+i\sqrt3"]),
    "factors that are not polynomials": (
        "Factor $x^2-49$.", "(x-7)(x+7)", ["(x+7)(x-7)"],
        [r"x(x-\frac{49}{x})", r"x^2(1-\frac{49}{x^2})", "2(\\frac{x^2}{2}-\\frac{49}{2})", r"\frac{(x-7)(x^2+7x)}{x}"],
    ),
    "an integer that all terms have": (
        "Factor $6x^2+12x$.", "6x(x+2)", ["6(x+2)x", r"6\cdot x\cdot(2+x)"], ["3x(2x+4)", "x(6x+12)", "2x(3x+6)", "6(x^2+2x)"],
    ),
    "an integer that the gold leaves": ("Factor $6x^2+12x$.", "3x(2x+4)", ["x(6x+12)", "6x(x+2)"], ["6(x^2+2x)"]),
    "more factors than the gold": ("Factor $x^4-1$.", "(x^2-1)(x^2+1)", ["(x-1)(x+1)(x^2+1)"], ["x^4-1"]),
    "factors with roots": ("Factor $x^2-2$.", r"(x-\sqrt2)(x+\sqrt2)", [r"(x+\sqrt2)(x-\sqrt2)"], ["x^2-2"]),
    "a common factor": (
        r"Simplify $\frac{1-x^2}{1-x}$.", "1+x", ["x+1"],
        [r"\frac{1-x^2}{1-x}", r"\frac{x^2-1}{x-1}", r"\frac{1}{1-x}-\frac{x^2}{1-x}", r"\frac{2x+2}{2}", r"x(1+\frac1x)"],
    ),
    "a fraction of letters": (
        r"Simplify $\frac{x^2+3x+2}{x^2+x}$.", r"\frac{x+2}{x}", [r"1+\frac2x", r"(x+2)/x", r"\frac{-x-2}{-x}"],
        [r"\frac{x^2+2x}{x^2}", r"\frac{2x+4}{2x}", r"\frac{x}{x}+\frac{2}{x}", r"\frac{(x+2)(x+1)}{x(x+1)}"],
    ),
    "fractions without a request to simplify": (
        "What is the resistance?", r"\frac{ab}{a+b}", [r"\frac{1}{\frac1a+\frac1b}", r"\frac{ba}{b+a}"], [r"\frac{a^2b}{a^2+ab}"],
    ),
    "powers of powers": (
        "Simplify $(x^3)^4$.", "x^{12}", ["x^{12}"],
        ["(x^4)^3", "(x^3)^4", "x^2x^{10}", "x^{3+9}", r"x^{3\cdot4}", r"\frac{x^{15}}{x^3}", r"\frac{1}{x^{-12}}"],
    ),
    "prime factors": (
        "Find the prime factorization of $360$.", r"2^3\cdot3^2\cdot5",
        [r"5\cdot3^2\cdot2^3", r"2\cdot2\cdot2\cdot3\cdot3\cdot5"],
        ["360", r"8\cdot9\cdot5", r"4\cdot90", r"2^3\cdot45"],
    ),
    "the number whose prime factors are known": (
        r"The prime factorization of $n$ is $2^3\cdot3^2\cdot5$. Find $n$.", "360", ["360"], [],
    ),
    "a power": (
        "Express $8^5$ as a power of 2.", "2^{15}", ["2^{15}"], ["8^5", "32768", r"4\cdot2^{13}", r"2^{10+5}"],
    ),
    "a power below": (r"Write $\frac18$ as a power of 2.", "2^{-3}", ["2^{-3}"], [r"\frac18", r"\frac{1}{2^3}", "8^{-1}"]),
    "a power that the gold works out": ("What is $2^{10}$ as a power of 2, worked out?", "1024", ["1024"], []),
    "a completed square": (
        "Write $y=x^2+4x+1$ in vertex form.", "y=(x+2)^2-3", ["y=-3+(2+x)^2", "(x+2)^2-3"],
        ["y=x^2+4x+1", "y=x(x+4)+1", "y=(x+1)^2+2x"],
    ),
    "a form with a square": ("Write $x^2+4x+1$ in the form $(x+a)^2+b$.", "(x+2)^2-3", ["-3+(x+2)^2"], ["x(x+4)+1"]),
    "what a completed square is for": ("Complete the square: what is the least value of $x^2+4x+1$?", "-3", ["-3"], []),
    "a circle": (
        "Write the equation of the circle in standard form.", "(x-1)^2+(y-2)^2=9", ["(y-2)^2+(x-1)^2=9"], ["x^2+y^2-2x-4y=4"],
    ),
    "a line": (
        "What is the equation of the line in standard form?", "2x-y=-3", ["-3=2x-y", "y-2x=3", "2x-y+3=0"], ["y=2x+3", "2x=y-3"],
    ),
    "a line in any form": ("What is the equation of the line?", "2x-y=-3", ["y=2x+3"], []),
    "a circle in any form": ("What is the equation of the circle?", "(x-1)^2+(y-2)^2=9", ["x^2+y^2-2x-4y=4"], []),
    "a polynomial in standard form": (
        "Write the polynomial $(x-1)^2-2$ in standard form.", "x^2-2x-1", ["-1-2x+x^2"], ["(x-1)^2-2", "x(x-2)-1"],
    ),
    "partial fractions": (
        r"Find the partial fraction decomposition of $\frac{5x-1}{x^2-1}$.", r"\frac{2}{x-1}+\frac{3}{x+1}",
        [r"\frac{3}{1+x}+\frac{2}{x-1}", r"\frac{3}{x+1}-\frac{2}{1-x}"],
        [r"\frac{5x-1}{x^2-1}", r"\frac{5x-1}{(x-1)(x+1)}", r"\frac{2(x+1)+3(x-1)}{(x-1)(x+1)}",
         r"\frac{5x}{(x-1)(x+1)}-\frac{1}{(x-1)(x+1)}"],
    ),
    "partial fractions with a common number": (
        r"Split $\frac{1}{x^2-1}$ into partial fractions.", r"\frac{1}{2(x-1)}-\frac{1}{2(x+1)}",
        [r"\frac12(\frac{1}{x-1}-\frac{1}{x+1})", r"\frac{1/2}{x-1}-\frac{1/2}{x+1}"], [r"\frac{1}{(x-1)(x+1)}"],
    ),
    "a number that is not a percentage": ("What is the probability as a percent?", r"37.5\%", ["37.5"], ["0.375", r"\frac38"]),
    "a number for a percentage where any will do": ("What is the probability?", r"37.5\%", ["0.375", r"\frac38"], []),
    "standard form of a number": (r"Find $5.2\times10^3$.", "5200", ["5200"], [r"5.2\times10^3"]),
    "logarithms of powers": ("What is $g$?", "gx", ["xg"], [r"x\ln e^g", r"x\log_2 2^g", r"gx+\ln 1", r"gx\ln e"]),
    "roots of squares": (r"What is the area?", r"12\pi", [r"\pi\cdot12"], [r"\sqrt{(12\pi)^2}", r"\pi\sqrt2\sqrt{72}"]),
    "a mixed number with a factor": ("What is the angle?", r"\frac{3\pi}{2}", [r"1\frac12\pi", r"1.5\pi"], []),
    "fractions that are added": (
        "What is the sum?", r"\frac{3x+2}{x(x+1)(x+2)}", [r"\frac{1}{x(x+1)}+\frac{2}{(x+1)(x+2)}"],
        [r"\frac{(3x+2)(x+3)}{x(x+1)(x+2)(x+3)}"],
    ),
    "powers of other products": (r"Simplify $2x\cdot4x^2$.", "8x^3", [r"8\cdot x^3"], ["(2x)^3"]),
    "powers of products": ("Simplify $(2x)^3$.", "8x^3", [r"8\cdot x^3"], ["(2x)^3", "2^3x^3", "4\\cdot2x^3"]),
    "a square of a fraction": ("What is $y$?", r"\frac{x^2}{4}", [r"(\frac x2)^2", "x^2/4"], []),
    "powers of i": (
        "Compute $i^7$.", "-i", ["-1i"], ["i^7", "i^3", r"i\cdot i^2", r"i^{11}", r"\frac{1}{i}", r"i^5\cdot i^2"],
    ),
    "products of complex numbers": ("Compute $(3-2i)^2$.", "5-12i", ["-12i+5"], ["(3-2i)^2", "9-12i+4i^2", "(3-2i)(3-2i)"]),
    "like terms of products": ("Simplify $(x+1)^2-(x-1)^2$.", "4x", [r"4\cdot x"], ["x^2+2x+1-(x-1)^2", "2x(x+1)-2x(x-1)"]),
    "roots": (
        r"Simplify $\sqrt{180}$.", r"6\sqrt5", [r"6\cdot5^{1/2}"],
        ["180^{1/2}", r"\sqrt{36}\sqrt5", r"\frac{30}{\sqrt5}", r"\sqrt[4]{32400}", r"\sqrt{30}\cdot\sqrt6", "180^{0.5}"],
    ),
    "roots of letters": (
        r"Simplify $\sqrt{18x^5}$, where $x>0$.", r"3x^2\sqrt{2x}", [r"3\sqrt{2x}x^2"],
        [r"3x\sqrt{2x^3}", r"\sqrt{9x^4}\sqrt{2x}"],
    ),
    "roots below": (
        r"Rationalize the denominator of $\frac{3}{\sqrt{18}}$.", r"\frac{\sqrt2}{2}", [r"\frac12\sqrt2", r"\frac12\cdot2^{1/2}"],
        [r"\frac1{\sqrt2}", "2^{-1/2}", r"\sqrt{\frac12}", "2^{-0.5}", r"\left(\frac12\right)^{1/2}", r"(\sqrt2)^{-1}"],
    ),
    "roots below without a request to rationalize": (
        "What is the length?", r"\frac{\sqrt2}{2}", [r"\frac1{\sqrt2}", "2^{-1/2}", r"\sqrt{\frac12}"], [r"\frac{2\sqrt2}{4}"],
    ),
    "an inequality of one letter": ("Where is it true?", "x>2", ["2<x", r"(2,\infty)"], ["2x>4", "x-2>0", "-x<-2"]),
    "a range": ("Where is it true?", "-1<x<3", ["(-1,3)", "x>-1, x<3"], []),
    "slope-intercept form": (
        "Write $2x-y+3=0$ in slope-intercept form.", "y=2x+3", ["y=3+2x", "2x+3=y"],
        ["2x=y-3", "2x-y=-3", "2y=4x+6", r"x=\frac{y-3}{2}"],
    ),
    "a line in slope-intercept form": (
        "Give the line in the form $y = mx + b$.", "y=2x+3", ["y=3+2x", "2x+3"], ["y=2(x-1)+5", "y=2x-2+5", r"y=\frac{4x+6}{2}"],
    ),
    "fractions in slope-intercept form": (
        "Give it in slope-intercept form.", r"y=\frac12x+1", [r"y=\frac{x}{2}+1", "y=0.5x+1"], [r"y=\frac{x+2}{2}"],
    ),
    "a factored line that the gold has": ("Give it in slope-intercept form.", "y=2(x-1)+3", ["y=2x+1"], []),
    "standard form": ("Write $y=2x+3$ in standard form.", "2x-y=-3", ["2x-y+3=0", "y-2x=3"], ["2x=y-3", "2x+3=y"]),
    "an equation to be solved for a letter": (
        "Solve $x+2y=4$ for $y$.", r"y=-\frac12x+2", [r"y=\frac{4-x}{2}", r"2-\frac x2"], ["x+2y=4", "2y=4-x", "x=4-2y"],
    ),
    "one of many equations of a line": (
        "What is the line through $(1,5)$ and $(2,7)$?", "y=2x+3", ["2x-y+3=0", "2x=y-3"], [],
    ),
    "a letter that cancels": ("What is $f$?", "x^2+1", ["1+x^2"], ["x^2+(z+1)-z", r"\frac{zx^2+z}{z}"]),
    "a formula in plain text": ("Factor x^2 - 49.", "(x-7)(x+7)", ["(x+7)(x-7)"], ["x^2-49"]),
    "a number of the question": ("The side is $5$, the other is $8$. What is the numerator?", "5", ["5", "5.0"], []),
}  # fmt: skip
RIGHT = [(question, gold, each) for question, gold, right, _ in ASKED.values() for each in [gold, *right]]
REFUSED = [(question, gold, each) for question, gold, _, refused in ASKED.values() for each in refused]


def judged(answer, gold, question):
    return judge_answer(rf"\boxed{{{answer}}}", gold, question)


@pytest.mark.parametrize(("question", "gold", "answer"), RIGHT)
def test_a_finished_answer_is_right(question, gold, answer):
    assert judged(answer, gold, question).right


@pytest.mark.parametrize(("question", "gold", "answer"), REFUSED)
def test_an_answer_that_is_not_finished_is_refused(question, gold, answer):
    found = judged(answer, gold, question)
    assert not found.right and found.fault in ("restated", "unfinished")
    assert judged(answer, gold, None).right, "its value is right"


TRIVIAL = {
    "one times": r"1\cdot ({})", "plus zero": "{}+0", "plus one minus one": "{}+1-1", "over one": r"\frac{{{}}}{{1}}",
    "six sixths": r"\frac{{6({})}}{{6}}", "three minus two": "3({0})-2({0})", "times one": r"({})\cdot1",
    "zero plus": "0+({})", "to the first": "({})^1", "a root of one": r"({})\sqrt{{1}}", "to the zeroth": "({})3^0",
    "minus minus": "-(-({}))", "a square over it": r"\frac{{({0})^2}}{{{0}}}",
    "an inverse of its inverse": r"\frac{{1}}{{\frac{{1}}{{{}}}}}",
    "a letter over itself": r"\frac{{k({})}}{{k}}", "an exponential of a logarithm": r"e^{{\ln({})}}",
    "i to the fourth": "({})i^4",
    "halves": r"\frac12({0})+\frac12({0})", "roots over roots": r"({})\frac{{\sqrt2}}{{\sqrt2}}",
    "a sum that is one": "({})(7-6)",
}  # fmt: skip
FORMULAS = {
    "letters": ("Factor $x^2-2x-15$.", "(x-5)(x+3)", "x^2-2x-15"),
    "one term": ("What is the area?", "3R^2", r"R^2\cdot3\cdot1"),
    "a power": ("How many are there?", "2^{k-1}", r"2^{k-1}\cdot1"),
    "a root": (r"Find $\sqrt{54}\cdot\sqrt{32}\cdot\sqrt6$.", r"72\sqrt2", r"\sqrt{54}\cdot\sqrt{32}\cdot\sqrt6"),
    "a value": (r"Find $\tan 75^\circ$.", r"2+\sqrt3", r"\tan 75^\circ"),
    "pi": (r"Find the area of the circle with $r=\sqrt{12}$.", r"12\pi", r"\pi(\sqrt{12})^2"),
    "a letter that may mean a derivative": (
        "Find the ratio.",
        r"\frac{d!}{2k(d-k)!}",
        r"\frac{d!}{(d-k)!}\cdot\frac{1}{2k}\cdot1",
    ),
    "a fraction of letters": (r"Simplify $\frac{(N-1)!N}{(N+1)!}$.", r"\frac{1}{N+1}", r"\frac{(N-1)!N}{(N+1)!}"),
}


@pytest.mark.parametrize("pattern", TRIVIAL.values(), ids=TRIVIAL)
@pytest.mark.parametrize(("question", "gold", "formula"), FORMULAS.values(), ids=FORMULAS)
def test_a_trivial_rewriting_earns_nothing(question, gold, formula, pattern):
    for base in (gold, formula):
        assert not judged(pattern.format(base), gold, question).right


@pytest.mark.parametrize("written", ["$t^2-49$", r"\(t^2-49\)", r"\[t^2-49\]", "$$t^2-49$$", "t^2-49", r"$\displaystyle t^2-49.$",
                                     r"\begin{align*}t^2&-49\end{align*}"])  # fmt: skip
def test_a_formula_is_found_however_it_is_set(written):
    assert judged("t^2-49", "(t-7)(t+7)", f"Factor {written} over the integers.").fault == "restated"
    assert judged("t^2-49", "(t-7)(t+7)", [{"role": "user", "content": f"Factor {written}"}]).fault == "restated"


def test_a_question_that_cannot_be_read_changes_nothing():
    for question in (
        "",
        "   ",
        "What?",
        "$",
        "$$$$",
        r"\[",
        "$\\frac{$ $}$",
        "\x00\ud800",
        "$" + "(" * 300 + "$",
        "$y" * 3000,
    ):
        assert judged("x^2-1", "(x-1)(x+1)", question).right
    assert read_question("").formulas == frozenset() and not read_question("").known


def test_other_alternatives_of_the_gold_count():
    assert judged("t^2-49", ["(t-7)(t+7)", "t^2-49"], "Factor or copy $t^2-49$.").right


def test_a_run_sees_how_often_the_question_is_restated():
    def info(answer):
        given = reward_input({}, "Factor $t^2-49$.")
        return compute_score("math", rf"\boxed{{{answer}}}", "(t-7)(t+7)", given)

    infos = [info(answer) for answer in ("t^2-49", "(t-7)(t+7)", "(t-7)(t+7)+1-1", "t^2-48")]
    assert [each["restated"] for each in infos] == [1, 0, 0, 0] and [each["acc"] for each in infos] == [0, 1, 0, 0]
    assert group_metrics("aabb", [each["score"] for each in infos], infos)["critic/reward_echo"] == 0.25


@pytest.mark.parametrize(
    ("question", "gold", "copies"),
    [
        (r"Compute $3\begin{pmatrix}1\\2\end{pmatrix}$.", r"\begin{pmatrix}3\\6\end{pmatrix}",
         [r"3\begin{pmatrix}1\\2\end{pmatrix}"]),
        ("Compute $(1,2)+(3,4)$.", "(4,6)", ["(1,2)+(3,4)", "(3,4)+(1,2)"]),
        ("Compute $-2(3,4)$.", "(-6,-8)", ["-2(3,4)"]),
        (r"Write $(1,2)\cup[2,3)$ as one interval.", "(1,3)", [r"(1,2)\cup[2,3)"]),
    ],
)  # fmt: skip
def test_vectors_matrices_and_sets_of_the_question_are_to_be_computed(question, gold, copies):
    assert judged(gold, gold, question).right
    assert [each for each in copies if judged(each, gold, question).right] == []


def test_a_condition_of_the_question_may_be_its_answer():
    assert judged(r"y \in [0,\pi]", r"[0,\pi]", r"Find the values of $y \in [0,\pi]$.").right


@pytest.mark.parametrize(
    ("question", "gold", "right", "wrong"),
    [
        ("Convert 3 hours to minutes.", r"180\text{ minutes}", ["180", r"180\text{ min}"], [r"3\text{ hours}"]),
        ("Convert 5 km to meters.", r"5000\text{ m}", ["5000", r"5000\text{ meters}"], [r"5\text{ km}"]),
        (r"Convert $\frac\pi3$ to degrees.", r"60^\circ", ["60", r"60^\circ"], [r"\frac{\pi}{3}\text{ radians}"]),
    ],
)
def test_a_conversion_ends_in_the_unit_that_is_asked_for(question, gold, right, wrong):
    assert [each for each in right if not judged(each, gold, question).right] == []
    assert [judged(each, gold, question).fault for each in wrong] == ["unit"] * len(wrong)


@pytest.mark.parametrize(
    ("question", "gold", "right", "wrong"),
    [
        ("Write 0.375 as a common fraction.", r"\frac{3}{8}", "3/8", [r"37.5\%", "0.375"]),
        (r"Write $\frac34$ as a decimal.", "0.75", "0.750", [r"75\%", r"7.5\times10^{-1}", r"\frac34"]),
    ],
)
def test_a_fraction_and_a_decimal_are_not_a_percentage(question, gold, right, wrong):
    assert judged(right, gold, question).right
    assert [each for each in wrong if judged(each, gold, question).right] == []
