"""The process that compares formulas: usable from everywhere, and bounded."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import pytest

from verl_trgrpo.common.sandbox import Sandbox
from verl_trgrpo.judge.judgment import formula_judges
from verl_trgrpo.judge.spelling import normalize
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.math.reward import score_math

FUNCTION = "verl_trgrpo.judge.formulas:same_formula"
GOLD, RIGHT, WRONG = r"3\sqrt{13}", r"\boxed{\sqrt{117}}", r"\boxed{\sqrt{118}}"


def both_verdicts(_=None):
    """The judge is needed for these: the texts differ, and neither is a plain number."""
    return compute_score("math", RIGHT, GOLD)["acc"], compute_score("math", WRONG, GOLD)["acc"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_multiprocessing(method):
    both_verdicts()  # a forked child finds a judge that is not its own
    with multiprocessing.get_context(method).Pool(1) as pool:  # the children are daemonic
        assert pool.map(both_verdicts, range(2)) == [(1.0, 0.0)] * 2
    assert both_verdicts() == (1.0, 0.0)


def test_a_fork_while_another_thread_asks_leaves_both_sides_working():
    stop = threading.Event()
    failures = []

    def ask():
        while not stop.is_set():
            if both_verdicts() != (1.0, 0.0):
                failures.append(1)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.map(both_verdicts, range(1)) == [(1.0, 0.0)]
    finally:
        stop.set()
        thread.join()
    assert not failures


# Formulas that take the library long; each got past the cheap checks in front, or is the reason for one.
HOSTILE = {
    "tower": r"9^{9^{9^{9^9}}}",
    "factorial of a factorial": r"((9!)!)!",
    "huge factorial": r"99999999!",
    "huge exponent": r"x^{99999999999}",
    "power of a sum": r"(x+1)^{9999}",
    "nested fractions": r"\frac{1}{" * 9 + "x" + "}" * 9,
    "nested roots": r"\sqrt{" * 20 + "x" + "}" * 20,
    "nested parentheses": "(" * 11 + "x" + ")" * 11,
    "nested bars": "|" * 20 + "x" + "|" * 20,
    "integrals": r"\int " * 10 + "x dx",
    "sum": r"\sum_{k=1}^{99999999} \sin(k)",
    "product": r"\prod_{k=1}^{99999} k^k",
    "binomial": r"\binom{99999999}{44444444}",
    "many functions": r"\sin x\cos" * 7 + "x",
    "subscripts": "a_{b_{c_{d}}}" * 6,
    "modulus": r"99999^{99999} \mod 7",
    "long": "x+" * 450 + "x",
}


@pytest.mark.parametrize("gold", ["2x+1", r"\frac{100!}{2^{50}}"], ids=["formula", "constant"])
@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_answers_are_bounded_and_the_next_call_is_served(answer, gold):
    assert both_verdicts() == (1.0, 0.0)
    # The judge stops at the limit or was not asked: any of these would take it a minute of a processor's time.
    assert score_math(rf"\boxed{{{answer}}}", gold, math_time_limit=0.2).acc == 0.0
    assert both_verdicts() == (1.0, 0.0)


SLOW = "+".join(f"{n}!" for n in range(20_000, 19_900, -1))  # a second of multiplications


def test_a_comparison_is_stopped_at_its_limit_and_reported():
    formula_judges.close()
    both_verdicts()
    pid = formula_judges.judges[0].process.pid
    result = score_math(r"\boxed{x}", SLOW, math_time_limit=0.05)
    assert (result.acc, result.timed_out, result.gold_unparseable) == (0.0, 1.0, 0.0)
    assert formula_judges.judges[0].process.pid == pid  # only its worker was replaced
    assert both_verdicts() == (1.0, 0.0)


def test_a_judge_that_cannot_start_is_a_clear_error(monkeypatch, tmp_path):
    (tmp_path / "mpmath.py").write_text("raise ImportError('no such library here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    client = Sandbox(FUNCTION)
    with pytest.raises(RuntimeError, match="cannot start: ImportError: no such library here"):
        client.ask("x", "y", limit=1.0)
    assert client.process is None


def test_the_calling_process_never_imports_the_libraries():
    code = (
        "import sys; from verl_trgrpo.tasks import compute_score; light = 'verl_trgrpo.judge.judgment' not in sys.modules; "
        rf"assert compute_score('math', r'{RIGHT}', r'{GOLD}')['acc'] == 1.0; "
        "print(light, [name for name in ('sympy', 'mpmath', 'numpy', 'torch', 'verl', 'ray') if name in sys.modules])"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (outcome.stdout.strip(), outcome.stderr) == ("True []", "")


POLYNOMIAL = "+".join(f"{coefficient}x^{{{coefficient - 2}}}" for coefficient in range(24, 1, -1))
# Right answers of a length that takes the parser longest before it has learned its grammar.
LONG = {
    "polynomial": (POLYNOMIAL, f"(x+1)({POLYNOMIAL})/(x+1)"),
    "product": (
        r"\frac{4\pi G\rho_{0}R^{2}}{3c^{2}}\left(1-\frac{r^{2}}{R^{2}}\right)e^{-\frac{t}{\tau}}\sin(\omega t+\phi)",
        r"e^{-t/\tau}\frac{4\pi G\rho_0(R^2-r^2)}{3c^2}\sin(\phi+\omega t)",
    ),
    "logarithms": (
        r"\frac{\ln(x^{2}+1)-\ln(x+2)}{\log_{2}(3)+\log_{5}(7)}",
        r"\ln\left(\frac{x^2+1}{x+2}\right)\cdot\frac{1}{\frac{\ln 3}{\ln 2}+\frac{\ln 7}{\ln 5}}",
    ),
}


def test_a_long_right_answer_is_as_far_from_the_limit_in_a_new_judge_as_later():
    """The work is counted in calls; a million of them are a small part of the limit."""
    code = f"""
import sys
from verl_trgrpo.judge import formulas
formulas.warm_up()
for pair in {[[normalize(text) for text in pair] for pair in LONG.values()]!r}:
    for _ in range(2):
        calls = []
        formulas._tokens.cache_clear(), formulas._parsed.cache_clear()
        sys.setprofile(lambda *event: calls.append(1))
        equal = formulas.same_formula(*pair)
        sys.setprofile(None)
        print(int(equal), len(calls))
"""
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    equal, calls = zip(*(map(int, line.split()) for line in outcome.stdout.splitlines()), strict=True)
    assert equal == (1,) * 2 * len(LONG)
    assert all(new < 1.1 * later < 1e6 for new, later in zip(calls[::2], calls[1::2], strict=True))
    for gold, answer in LONG.values():
        assert score_math(rf"\boxed{{{answer}}}", gold).acc == 1.0


def test_the_verdict_does_not_depend_on_what_was_asked_before():
    first = [score_math(rf"\boxed{{{n}x+x}}", "4x").acc for n in range(1, 6)]
    formula_judges.close()
    again = [score_math(rf"\boxed{{{n}x+x}}", "4x").acc for n in range(5, 0, -1)]
    assert first == again[::-1] == [0.0, 0.0, 1.0, 0.0, 0.0]


def test_a_verdict_is_kept_and_an_unknown_one_is_not():
    formula_judges.close()
    assert both_verdicts() == (1.0, 0.0)
    pid = formula_judges.judges[0].process.pid
    os.killpg(pid, signal.SIGSTOP)  # a stopped process does not answer
    try:
        assert both_verdicts() == (1.0, 0.0)
    finally:
        os.killpg(pid, signal.SIGCONT)
    for _ in range(2):
        assert score_math(r"\boxed{x}", SLOW, math_time_limit=0.05).timed_out == 1.0
