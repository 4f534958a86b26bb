r"""What the question says beside its formulas: the order of a list, letters, units, the base of a logarithm, parts."""

import pytest

from verl_trgrpo.judge import judge_answer
from verl_trgrpo.judge.question import read_question

# Question, gold, answers that are right, answers that are wrong.
ASKED = {
    "increasing order": ("Find all roots. List them in increasing order.", "-1, 2, 5", ["-1, 2, 5"], ["5, 2, -1", "2, -1, 5"]),
    "respectively": ("What are $p$ and $q$, respectively?", "3, 4", ["3, 4", "p=3, q=4"], ["4, 3"]),
    "respectively of the givens": (
        r"Points $D,E$ lie on $AB$ and $AC$, respectively. Find all values of $x$.", "3, 4", ["4, 3"], [],
    ),
    "in order to": ("In order to win, which $n$ can be chosen?", "3, 4", ["4, 3"], []),
    "a ranking": ("Rank the functions by growth.", "C, A, B", ["C, A, B"], ["A, B, C", "B, A, C"]),
    "any order": ("Find all roots.", "3, 4", ["4, 3"], ["4"]),
    "antiderivatives": (
        r"Find $\int \sin x\cos x\,dx$.", r"\frac{\sin^2x}{2}+C",
        [r"-\frac{\cos^2x}{2}+C", r"-\frac14\cos2x+K", r"F(x)=\frac12\sin^2x+C"],
        [r"\frac{\cos^2x}{2}+C", r"-\frac{\cos^2x}{2}", r"-\frac{\cos^2x}{2}+1", r"-\frac{\cos^2x}{2}+x+C",
         r"-\frac{\cos^2x}{2}+xC", r"\int\sin x\cos x\,dx+C"],
    ),
    "an antiderivative with an end": (
        r"Find $\int f(x)\,dx$.", r"\ln(x-3)+C", [r"\ln(2x-6)+C"], [r"2\ln(x-3)+C", r"\ln(2x-3)+C"],
    ),
    "a constant that belongs to no integral": ("Solve the equation for $y$.", "x^2+2x+C", ["2x+x^2+C"], ["(x+1)^2+C"]),
    "a constant of one's own": (r"Find $\int 4x^3\,dx$.", "x^4+C", ["x^4+c", "x^4+K", "c+x^4"], ["x^4+x", "x^3+c", "x^4+cx"]),
    "two constants": (
        "Find the general solution of $y''=y$.", "C_1e^x+C_2e^{-x}", ["Ae^x+Be^{-x}", "c_1e^{-x}+c_2e^x"],
        ["Ae^x+Ae^{-x}", "Ae^x+ye^{-x}"],
    ),
    "constants in another order": (
        "Find the general solution of $y''+4y=0$.", r"y=c_1\cos2x+c_2\sin2x",
        [r"y=c_1\sin2x+c_2\cos2x", r"y=B\cos2x+A\sin2x"], [r"y=c_1\sin2x+c_1\cos2x", r"y=c_1\sin2x+c_2\cos x"],
    ),
    "two signs for one of several values": (
        "Find all solutions of $x^3=4x$.", "-2, 0, 2", [r"x=0 \text{ or } x=\pm2", r"x=0,\pm2"],
        [r"x=0 \text{ or } x=\pm3", r"x=\pm2", r"x=0, x=2"],
    ),
    "two signs for another letter": ("Find all $x$.", "x=-2,0,2", [r"x=0, x=\pm2"], [r"x=0 \text{ or } y=\pm2"]),
    "a letter of the question": ("For a constant $c$ and $k$, find $f$ with $f(x)=xf(1)$.", "f(x)=cx", ["f(x)=cx"], ["f(x)=kx"]),
    "a letter of the text": ("There are n men and k women, with $x$ seats. How many?", "nx", ["xn"], ["kx"]),
    "segments": (r"Which segment is parallel to the line $\ell$?", r"\overline{AB}", [r"\overline{AB}"], [r"\overline{AC}"]),
    "no formula": ("Which letter is it?", "2B", ["2B"], ["2C"]),
    "square units": ("What is the area, in square centimeters?", "12", ["12", r"12\text{ cm}^2"], [r"12\text{ cm}", r"12^\circ"]),
    "hours": ("How many hours does it take?", "12", [r"12\text{ hours}", r"12\text{ h}"], [r"12\text{ min}", r"12\text{ cm}"]),
    "minutes of a gold in minutes": (
        "How long does it take, in minutes?", r"150\text{ minutes}", ["150", r"150\text{ min}"], [r"2.5\text{ hours}"],
    ),
    "a gold in another unit than is asked": (
        "After how many minutes is it there?", r"2.5\text{ hours}", [r"150\text{ min}", r"2.5\text{ h}"], [r"2\text{ h}"],
    ),
    "a unit that is not asked": ("How long is it?", "12", [r"12\text{ cm}"], []),
    "radians": (r"Find the angle in radians.", r"\frac{\pi}{3}", [r"\frac{\pi}{3}", r"\frac\pi3\text{ radians}"], [r"60^\circ"]),
    "degrees in radians": (r"Convert $60^\circ$ to radians.", r"\frac{\pi}{3}", [r"\frac\pi3"], [r"60^\circ"]),
    "degrees": ("What is the angle, in degrees?", r"60^\circ", ["60", r"60^\circ"], [r"\frac\pi3"]),
    "names of a pair": ("Find the pair $(x,y)$.", "(2,5)", ["y=5, x=2", "x=2, y=5"], ["y=2, x=5", "x=5, y=2"]),
    "names of no pair": ("Find the point.", "(2,5)", ["x=2, y=5"], ["y=5, x=2"]),
    "an order as a chain": ("List them in increasing order.", "2, 3, 7", ["2<3<7"], ["2<7<3", "7>3>2", "2<3"]),
    "a ranking as a chain": ("Rank them.", "C, A, B", ["C<A<B"], ["A<B<C"]),
    "a chain where no order is asked": ("Find the prime factors.", "2, 3, 7", ["2,3,7"], ["2<3<7"]),
    "coordinates are no constants": (
        "What is the circle with radius $r=2$ and the diameter $AB$?", "x^2+y^2-4x-2y=0", ["(x-2)^2+(y-1)^2=5"],
        ["(x-1)^2+(y-2)^2=5", "x^2+y^2-2x-4y=0"],
    ),
    "coordinates of a plane": (
        "What is the plane with $a+b=1$?", "6x+3y+cz=6", ["6x+3y+kz=6"], ["6y+3x+cz=6", "6x+3z+cy=6"],
    ),
    "two constants in a sequence": (
        r"Find all $f$ with $f(n+1)+f(n-1)=2f(n)$.", r"f(n)=an+b \text{ for arbitrary integers } a, b",
        [r"f(n)=cn+d \text{ with } c,d\in\mathbb{Z}"], [r"f(n)=cn+c", "f(n)=an"],
    ),
    "radians in degrees": (r"Convert $\frac\pi3$ to degrees.", "60", [r"60^\circ"], [r"\frac\pi3"]),
    "no percentage": ("How many zebras are there?", "42", ["42"], [r"42\%"]),
    "a percentage": ("What percent is it?", "42", ["42", r"42\%"], [r"0.42\%"]),
    "logarithms of analysis": (r"Find $\int_1^2\frac{dx}x$.", r"\log 2", [r"\ln 2", r"\log_e 2", r"\log 2"], [r"\log_{10} 2"]),
    "logarithms of base 10": (
        r"Find the common logarithm of $2$ as $\log x$.", r"2\log 3", [r"2\log_{10}3", r"\log 9"], [r"2\ln 3"],
    ),
    "the value of the option": (
        "Which one is $x$? (A) 5 (B) 7 (C) 9", "B", ["B", "B. 7", r"\text{(B) } 7", r"\textbf{(B)}\ 7"],
        ["B. 9", r"\text{(B) } 9", r"(B) \frac12", "C. 7", r"B. 7 \qquad C. 9"],
    ),
    "marks around a letter": (
        "What is $x$? (A) 5 (B) 7 (C) 9", "B",
        ["B)", "(B).", "option (B)", "choice (B)", "7 (B)", r"7 \text{ (B)}", r"7 \text{ option B}", r"\text{option (B)}"],
        ["C)", "option (C)", "7 (C)", "9 (B)", "not (B)", "(B) or (C)", "B) or C)", "(A)(B)", "7B", "7 or (B)"],
    ),
    "a letter behind its value": ("What is $x$? (A) 5 (B) 7 (C) 9", "7", ["7 (B)", "B)", "option (B)"], ["7 (C)", "9 (B)", "C)"]),
    "a letter behind its phrase": (
        "What is it?\nA. a cone\nB. a sphere", "B", [r"\text{a sphere} (B)"], [r"\text{a cone} (B)", r"\text{a sphere} (A)"],
    ),
    "a letter behind a value that is not an option": ("What is the chance?", "P(A)", ["P(A)"], ["A", "P(B)"]),
    "the value without its letter": (
        "What is $x$? (A) 5 (B) 7 (C) 9", r"\textbf{(B)}", ["7", "x=7", "7.0"], ["9", "5", "A", "(A)"],
    ),
    "the letter alone for a value": ("What is $x$? (A) 5 (B) 7 (C) 9", "9", ["C", r"\text{(C)}"], ["B", "D", "C. 5"]),
    "a letter that is another value": ("Which point is it? (A) P (B) A (C) Q", "P", ["A"], ["B", "C", "Q"]),
    "options that are empty": ("Is it so? (A) (B)", "A", ["A"], ["B", "x"]),
    "a value that is another letter": ("Which point is it? (A) P (B) A (C) Q", "B", ["B"], ["A", "P", "Q"]),
    "a value of two letters": ("What is $x$? (A) 1 (B) 2 (C) 1", "C", ["C"], ["1", "A"]),
    "a letter that is asked for": ("What is $x$? (A) 5 (B) 7 Answer with the letter.", "B", ["B"], ["7"]),
    "a phrase without its letter": (
        "What is it?\nA. a cone\nB. a sphere", "B", [r"\text{a sphere}", r"\text{sphere}"],
        [r"\text{a cone}", r"\text{not a sphere}"],
    ),
    "a count in words": (
        "How many solutions are there?", "2", [r"\text{two solutions}", "two solutions"],
        [r"\text{three solutions}", r"\text{two thirds}", r"\text{two or three solutions}", r"\text{two zebras}",
         r"\text{twenty two}"],
    ),
    "an amount in words": (
        "How much is it?", r"\$5", [r"\text{five dollars}", r"\text{Five dollars}"],
        [r"\text{five cents}", r"\text{five hundred dollars}"],
    ),
    "a fraction in words": (
        "What part is left?", r"\frac34", ["three quarters", r"\text{three fourths}", "Three-quarters"],
        ["three", "three thirds", "three quarter", "a quarter", "third", r"3\text{ quarters}"],
    ),
    "a half": (
        "What part is left?", "0.5", ["half", "one half", "one-half", r"\text{a half}"], ["halves", "two", "half past one"],
    ),
    "a fraction in words to be reduced": ("What part is left, in lowest terms?", r"\frac12", ["one half"], ["two quarters"]),
    "an integer in parts": ("How many are left?", "2", ["two"], ["four halves", "two halves"]),
    "a change in percent": (
        "It rose from $4$ to $5$ after a decrease. By what percent did it increase?", "25",
        [r"25\%", r"25\%\text{ increase}", "25% increase", r"25\text{ percent increase}", "25 percent increase"],
        [r"25\%\text{ decrease}", r"25\%\text{ maybe}", r"30\%\text{ increase}", r"0.25\%\text{ increase}"],
    ),
    "a change in percent of a percentage": (
        "What was the percentage decrease?", r"25\%", [r"25\%\text{ decrease}", "25"],
        [r"25\%\text{ increase}", r"25\%\text{ cm}", r"75\%\text{ decrease}"],
    ),
    "a change in other words": (
        "By what percentage did sales drop?", "30", [r"30\%\text{ drop}", r"30\%\text{ decrease}", r"30\%\text{ loss}"],
        [r"30\%\text{ increase}", r"30\%\text{ rise}", r"70\%\text{ drop}"],
    ),
    "a change that may be either": ("Find the percent increase or decrease.", r"25\%", [r"25\%"], [r"25\%\text{ increase}"]),
    "no change": ("What percent of them did not increase?", r"25\%", [r"25\%"], [r"25\%\text{ decrease}"]),
    "words that count nothing": ("What is it?", r"\text{two lines}", [r"\text{Two lines}"], [r"\text{two points}", "2"]),
    "the letter of the value": ("What is $x$? (A) 5 (B) 7 (C) 9", "7", ["7", "B. 7"], ["C. 7", "B. 9"]),
    "options in one formula": (
        r"What is $x$? $\textbf{(A)}\ \frac12\qquad\textbf{(B)}\ \frac34\qquad\textbf{(C)}\ 9$", "B",
        [r"\textbf{(B)}\ \frac{3}{4}", "(B) 0.75"], [r"\textbf{(B)}\ \frac12", "B. 9"],
    ),
    "options in words": (
        "What is it?\nA. a cone\nB. a sphere", "B", [r"\text{B. a sphere}", r"\text{B. sphere}"], [r"\text{B. a cone}"],
    ),
    "options that are not known": ("Which one is it?", "B", ["B. 12"], [r"\text{B. a cone}"]),
    "the nearest hundredth": (
        "Round it to the nearest hundredth.", r"\frac{22}{7}", ["3.14", r"\frac{22}7"], ["3.143", "3.1", "3.15", "3", r"3.14\%"],
    ),
    "the nearest hundredth of a root": (
        "Find it to two decimal places.", r"-10\sqrt2", ["-14.14", r"-10\sqrt{2}"], ["-14.15", "-14.142", "14.14", "-14.1"],
    ),
    "the nearest integer": ("Find it to the nearest integer.", r"\sqrt{200}", ["14"], ["15", "14.1", r"\sqrt{201}"]),
    "a gold that is rounded": ("Give it to the nearest hundredth.", "3.14", ["3.14", r"\approx 3.14"], ["3.142", "3.1", r"\pi"]),
    "two roundings": ("To the nearest tenth or to the nearest hundredth?", r"\frac{22}{7}", [], ["3.14", "3.1"]),
    "no rounding": ("What is it?", r"\frac{22}{7}", [], ["3.14", "3.142857"]),
    "exact": ("Find the exact value.", r"\frac14", [r"\frac14", "0.25"], ["0.3", "0.2500001"]),
    "exact, with a period": ("Find the exact value.", r"\frac13", [r"0.\overline{3}"], ["0.333", "0.3333333333"]),
    "a base": ("Write $22$ in base $5$.", "42", ["42", "42_5", "42_{5}"], ["42_8", "44_5", "22"]),
    "a base in the gold": ("Write it in base 8.", "52_8", ["52", "52_{8}"], ["52_9", "52_{10}", "42", "42_8"]),
    "no base": ("What is it?", "42", ["42_{10}"], ["42_5"]),
    "how many": ("How many are there?", "3", ["3"], ["1, 2, 3", r"\{1,2,3\}", "(1,2,3)"]),
    "about": ("How many zebras are there?", "42", ["42"], [r"\approx 42", r"x\approx 42", "≈ 42"]),
    "about, where it is asked": ("About how many zebras are there?", "42", ["42", r"\approx 42"], [r"\approx 43"]),
    "a left side that is left to simplify": (
        "What is $x$ if $2x+1=7$?", "3", ["x=3"], ["x+0=3", "3x-2x=3", r"1\cdot x=3", r"\frac{2x}{2}=3", "2x=6", "x+y-y=3"],
    ),
    "a left side as in the question": ("If $x+y=4$, what is $x+x+y+y$?", "8", ["x+x+y+y=8", "2x+2y=8"], ["x+x+2y=8"]),
    "the formula of the question stands left": (
        "Expand $(x+1)^2$.", "x^2+2x+1", ["(x+1)^2=x^2+2x+1", "(1+x)^2=(x+1)(x+1)=1+2x+x^2"],
        ["(x+1)^2=(x+1)(x+1)", "(x+2)^2=x^2+2x+1", "(x+1)^2=x^2+1=x^2+2x+1", "x^2+2x+1=(x+1)^2"],
    ),
    "an equation of the question is not an identity": ("If $ab=c$, what is $a+b$ in terms of $c$?", "c+1", ["1+c"], ["ab=c+1"]),
    "what is asked stands left": ("If $x^2+y=10$ and $y=0$, find $x^2$.", "10", ["x^2=10"], ["x^3=10", "-x=10"]),
}  # fmt: skip
RIGHT = [(question, gold, each) for question, gold, right, _ in ASKED.values() for each in right]
WRONG = [(question, gold, each) for question, gold, _, wrong in ASKED.values() for each in wrong]


def is_right(answer, gold, question):
    return judge_answer(rf"\boxed{{{answer}}}", gold, question).right


@pytest.mark.parametrize(("question", "gold", "answer"), RIGHT)
def test_right_for_the_question(question, gold, answer):
    assert is_right(answer, gold, question)


@pytest.mark.parametrize(("question", "gold", "answer"), WRONG)
def test_wrong_for_the_question(question, gold, answer):
    assert not is_right(answer, gold, question)


@pytest.mark.parametrize("gold", [r"\frac{\pi}{8}\log 2", r"e^{2\log 5}\arctan 2"])
def test_a_gold_of_analysis_means_the_natural_logarithm(gold):
    assert is_right(gold.replace(r"\log", r"\ln"), gold, None)
    assert not is_right(gold.replace(r"\log", r"\log_{10}"), gold, None)


def test_the_source_of_a_gold_may_say_that_its_logarithms_are_natural():
    for natural in (False, True):
        assert judge_answer(r"\boxed{\ln 2}", r"\log 2", natural_log=natural).right == natural
        assert judge_answer(r"\boxed{\log_{10} 2}", r"\log 2", natural_log=natural).right != natural


@pytest.mark.parametrize("question", ["Find the common logarithm of 2.", r"What is $\log_{10} 2$ in terms of $\log$?"])
def test_a_question_that_names_base_10_decides_against_its_source(question):
    assert judge_answer(r"\boxed{\log_{10} 2}", r"\log 2", question, natural_log=True).right
    assert not judge_answer(r"\boxed{\ln 2}", r"\log 2", question, natural_log=True).right


PARTS = "Solve it. What are all solutions?"


@pytest.mark.parametrize(
    ("response", "right"),
    [
        (r"First: \boxed{3}. Second solution: \boxed{5}.", True),
        ("The solutions are:\n\n$\\boxed{5}$\n\n$\\boxed{3}$", True),
        (r"So $x=\boxed{3}$. Check: \boxed{3}. The other one is \boxed{5}.", True),
        (r"First: \boxed{3}. Second: \boxed{5}. Third: \boxed{7}.", False),
        (r"It is \boxed{3}. It is not \boxed{5}.", False),
        (r"It is \boxed{3}. Or is it \boxed{5}?", False),
        (r"It is \boxed{3}. Then \boxed{5", False),
        (r"It is \boxed{4}. Then \boxed{5}.", False),
    ],
)
def test_boxes_are_one_answer_where_several_are_asked(response, right):
    assert judge_answer(response, "3, 5", PARTS).right == right
    assert not judge_answer(response, "3, 5", "What is $x$?").right


@pytest.mark.parametrize(("response", "right"), [(r"\boxed{42}\boxed{}", False), (r"\boxed{}\boxed{42}", True),
                                                 (r"\boxed{42}. \boxed{ }", False)])  # fmt: skip
def test_an_empty_box_at_the_end_states_nothing(response, right):
    assert judge_answer(response, "42").right == right


@pytest.mark.parametrize(("gold", "answer"), [("5", r"\pi=5"), ("10", "x^2=10"), ("10", "-x=10"), ("10", "1/x=10"),
                                              ("10", r"\frac x2=10"), ("0.4", r"0.4\%")])  # fmt: skip
def test_a_number_behind_something_else_is_not_the_number(gold, answer):
    assert not is_right(answer, gold, None) and not is_right(answer, gold, "What is it?")


WORDINGS = {
    "factored": ["Factor $x$.", "factorise", "Write it in factored form"], "expanded": ["Expand $x$", "multiply out"],
    "simplified": ["Simplify", "in simplest radical form"], "reduced": ["in lowest terms", "as a common fraction"],
    "rationalized": ["Rationalize the denominator"], "fraction": ["as a fraction", "as a common fraction"],
    "decimal": ["as a decimal"], "mixed": ["as a mixed number"], "radians": ["in radians"], "degrees": ["How many degrees"],
    "rounded": ["Round to the nearest tenth.", "Give the answer to two decimal places", "to 3 significant figures"],
    "ordered": ["Give them in increasing order", "List them from least to greatest", "Find $a$ and $b$, respectively"],
    "several": ["Find all roots"], "percent": ["What percent", r"$5\%$"], 
    "natural logarithm": [r"$\int x$", r"$\int_0^1 x$", "the natural logarithm"],
    "decimal logarithm": [r"$\log_{10} x$", "base 10"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WORDINGS.items() for text in texts])
def test_wordings_are_recognised(name, text):
    assert name in read_question(text).asks


def test_options_places_and_bases_are_read_only_where_they_are_clear():
    assert read_question("(A) $5$ (B) $7$.").options == (("A", "$5$"), ("B", "$7$"))
    assert not read_question("(B) 5 (A) 7").options and not read_question("Let $f(A)$ be $f(B)$").options
    assert read_question("Round to the nearest integer.").places == 0
    assert read_question("The number is in base 10. Give it in base 7.").base == 7
    assert read_question("Write it in base 10.").base is None


def test_plain_questions_ask_for_nothing():
    assert read_question("What is the largest prime factor of $n!$ in order to win?").asks == frozenset()
