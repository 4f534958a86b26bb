"""Compare verdicts about long right answers between new judges of formulas, and their times with the limit.

    python benchmarks/math_judges.py --judges 8 --load 4

Each answer is asked twice of each judge, while busy processes compete for the cores. Printed are the verdicts and the most CPU
time that the first and the second comparison took, as a share of the limit.
"""

import argparse
import inspect
import subprocess
import sys

from verl_trgrpo.common.text import text_table
from verl_trgrpo.tasks.judge import Judge
from verl_trgrpo.tasks.math.reward import judge as math_judge
from verl_trgrpo.tasks.math.reward import score_math
from verl_trgrpo.tasks.math.spelling import normalize

POLYNOMIAL = "+".join(f"{coefficient}x^{{{coefficient - 2}}}" for coefficient in range(24, 1, -1))
LONG_ANSWERS = {
    "polynomial": (POLYNOMIAL, f"(x+1)({POLYNOMIAL})/(x+1)"),
    "expansion": (
        "abc(a^{2}b+3ac-5b^{2}+15+c)+7a^{4}-12b^{4}+8c^{4}-9a^{2}b^{2}",
        "a^{3}b^{2}c+3a^{2}bc^{2}-5ab^{3}c+15abc+abc^{2}+7a^{4}-12b^{4}+8c^{4}-9a^{2}b^{2}",
    ),
    "fractions": (
        r"\frac{1}{2}(\frac{1}{x+1}-\frac{1}{x+3})+\frac{\sqrt{x^{2}+1}}{\sqrt{x}+1}",
        r"\frac{1}{(x+1)(x+3)}+\frac{\sqrt{x^2+1}(\sqrt{x}-1)}{x-1}",
    ),
    "trigonometry": (
        r"\frac{\sin(a+b)\cos(a-b)}{\sin^2 a-\cos^2 b}+\tan(2a)",
        r"\frac{\sin 2a+\sin 2b}{2(\sin^2 a-\cos^2 b)}+\frac{2\tan a}{1-\tan^2 a}",
    ),
    "product": (
        r"\frac{4\pi G\rho_{0}R^{2}}{3c^{2}}(1-\frac{r^{2}}{R^{2}})e^{-\frac{t}{\tau}}\sin(\omega t+\phi)",
        r"e^{-t/\tau}\frac{4\pi G\rho_0(R^2-r^2)}{3c^2}\sin(\phi+\omega t)",
    ),
    "logarithms": (
        r"\frac{\ln(x^{2}+1)-\ln(x+2)}{\log_{2}(3)+\log_{5}(7)}",
        r"\ln(\frac{x^2+1}{x+2})\cdot\frac{1}{\frac{\ln 3}{\ln 2}+\frac{\ln 7}{\ln 5}}",
    ),
}


def fresh_judges(number: int, load: int) -> None:
    """Print verdicts and CPU seconds of each long answer in new judges, with `load` busy processes beside them."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
    limit = inspect.signature(score_math).parameters["math_time_limit"].default
    rows = []
    try:
        for kind, (truth, answer) in LONG_ANSWERS.items():
            first, second, verdicts = [], [], set()
            for _ in range(number):
                judge = Judge(math_judge.function)
                for seconds in (first, second):
                    equal, taken = judge.ask(normalize(truth), normalize(answer), limit=60.0)
                    verdicts.add(equal)
                    seconds.append(taken)
                judge.close()
            rows.append([kind, str(verdicts), f"{max(first) / limit:.2f}", f"{max(second) / limit:.3f}"])
    finally:
        for process in busy:
            process.kill()
    print(text_table(rows, ["answer", "verdicts", "first, of the limit", "second, of the limit"], "llrr"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judges", type=int, default=8, help="new judges (default: %(default)s)")
    parser.add_argument("--load", type=int, default=4, help="busy processes (default: %(default)s)")
    arguments = parser.parse_args()
    fresh_judges(arguments.judges, arguments.load)


if __name__ == "__main__":
    main()
