"""Change ground truths by rules that are wrong or right by construction, and print what the mathematics reward pays
and refuses by rule.

    python benchmarks/reward_mutants.py --data DIR --out mutants.json
    python benchmarks/reward_mutants.py --golds "x+1" "2^{1009}" "(C)"

--data: a directory as for `math_agreement.py`. No problem text is read, only answers. A wrong mutant that is paid,
and a right one that
is refused, are listed with --show.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

from math_agreement import read_golds
from math_agreement_answers import bare

from verl_trgrpo.common.text import text_table
from verl_trgrpo.tasks import compute_score

Rule = Callable[[str], str | None]

_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?|-?\\frac\{[0-9]+\}\{[0-9]+\}")
_FORMULA = re.compile(
    r"(?!.*(?:text|,|=|<|>|\\le|\\ge|\\in|\\cup|\\pm|\\begin|\$|%|:|\\circ|_|\\(?:mid|equiv|neq|approx|infty|[{}])))(?=.*[0-9a-z]).+",
    re.DOTALL,
)
_PAIR = re.compile(r"([(\[])([^()\[\],]+),([^()\[\],]+)([)\]])")
_CHOICE = re.compile(r"(?:\\text\{)?\(?([A-E])\)?\}?")
_WORD = re.compile(r"\\text\{([a-zA-Z]{3,})\}")
_LIST = re.compile(r"[^()\[\]{},]+(?:,[^()\[\]{},]+)+")


def where(pattern: re.Pattern[str], change: Callable[[str, re.Match[str]], str | None]) -> Rule:
    """Return a rule for the ground truths that match a pattern as a whole."""

    def rule(gold: str) -> str | None:
        match = pattern.fullmatch(gold)
        return change(gold, match) if match else None

    return rule


def formula(template: str) -> Rule:
    """Return a rule that puts a formula into a template."""
    return where(_FORMULA, lambda gold, _: template.replace("G", gold))


def number(template: str) -> Rule:
    return where(_NUMBER, lambda gold, _: template.replace("G", gold))


def choice(template: str) -> Rule:
    return where(
        _CHOICE, lambda _, match: template.replace("G", match[1]).replace("H", "B" if match[1] == "A" else "A")
    )


def pair(template: str) -> Rule:
    def change(gold: str, match: re.Match[str]) -> str | None:
        text = template.replace("A", match[2].strip()).replace("B", match[3].strip())
        return text.replace("<", match[1]).replace(">", match[4])

    return where(_PAIR, change)


def _value(gold: str) -> Fraction:
    return (
        Fraction(*map(int, re.findall("[0-9]+", gold))) * (-1 if gold[0] == "-" else 1)
        if "frac" in gold
        else Fraction(gold)
    )


def _other_value(change: Callable[[Fraction], Fraction]) -> Rule:
    def rule(gold: str, _: re.Match[str]) -> str | None:
        value = _value(gold)
        other = change(value)
        return (
            None
            if other == value
            else rf"\frac{{{other.numerator}}}{{{other.denominator}}}"
            if other.denominator > 1
            else f"{other}"
        )

    return where(_NUMBER, rule)


def _swapped_brackets(gold: str, match: re.Match[str]) -> str:
    return f"{'[' if match[1] == '(' else '('}{match[2]},{match[3]}{match[4]}"


def _swapped(gold: str, match: re.Match[str]) -> str | None:
    return (
        f"{match[1]}{match[3].strip()},{match[2].strip()}{match[4]}" if match[2].strip() != match[3].strip() else None
    )


def _is_formula(gold: str) -> bool:
    """Return whether a gold is no number in any spelling: of a number, arithmetic that is left to do is refused."""
    return (
        re.search(r"\\(?:sqrt|pi|ln|log|sin|cos|tan)|(?<![a-zA-Z\\])[a-zA-Z](?![a-zA-Z0-9])", gold) is not None
        and "mbox" not in gold
    )


WRONG: dict[str, Rule] = {
    "one more": _other_value(lambda value: value + 1),
    "one less": _other_value(lambda value: value - 1),
    "sign": _other_value(lambda value: -value),
    "inverted": _other_value(lambda value: 1 / value if value else value),
    "ten times": _other_value(lambda value: 10 * value),
    "squared": where(_NUMBER, lambda gold, _: f"({gold})^{{2}}" if abs(_value(gold)) not in (0, 1) else None),
    "formula and one": formula("G+1"),
    "formula and a little": formula(r"G+10^{-60}"),
    "minus the formula": where(_FORMULA, lambda gold, _: f"-({gold})" if gold.strip() not in ("0", "-0") else None),
    "twice the formula": where(_FORMULA, lambda gold, _: f"2({gold})" if gold.strip() != "0" else None),
    "a factor behind": formula("(G)y_7"),
    "a prime": formula("(G)'"),
    "a function": formula("f(G)"),
    "a power behind": where(_FORMULA, lambda gold, _: f"({gold})^3" if gold.strip() not in ("0", "1", "-1") else None),
    "or seven": formula(r"G \text{ or } 7771"),
    "and seven": formula("G, 7771"),
    "a slash": formula("G / 7771"),
    "plus or minus": where(_NUMBER, lambda gold, _: rf"\pm {gold.lstrip('-')}" if _value(gold) else None),
    "not equal": formula(r"\neq G"),
    "at least": formula(r"\geq G"),
    "condition": formula(r"G \text{ if } x>7771"),
    "thousandths": number(r"G \text{ thousandths}"),
    "million": where(_NUMBER, lambda gold, _: rf"{gold} \text{{ million}}" if _value(gold) else None),
    "doubled": number(r"G \text{ doubled}"),
    "incorrect": number(r"G \text{ is incorrect}"),
    "unknown word": number(r"G \text{ florps}"),
    "number word": number(r"G \text{ thirteen}"),
    "other script": where(_NUMBER, lambda gold, _: f"{gold}万" if _value(gold) else None),
    "other script, words": number("G或无解"),
    "or more": number(r"G \text{ or more}"),
    "factorial": where(_INTEGER, lambda gold, _: f"{gold}!" if int(gold) > 2 else None),
    "an overline": number(r"\overline{G}"),
    "letter behind": number("Gq"),
    "base behind": where(_INTEGER, lambda gold, _: f"{gold}_9" if int(gold) > 8 else None),
    "decimals behind": where(_INTEGER, lambda gold, _: f"{gold}.0001"),
    "another letter": choice("H"),
    "another letter behind": choice(r"\text{(G) or (H)}"),
    "two choices": choice(r"\text{(G)}, \text{(H)}"),
    "choice denied": choice(r"\text{not G}"),
    "choice with a doubt": choice(r"\text{G: wrong}"),
    "choice with a letter": choice("G) H"),
    "entries swapped": where(_PAIR, _swapped),
    "other bracket": where(_PAIR, _swapped_brackets),
    "entry left out": pair("<A>"),
    "entry added": pair("<A,B,7771>"),
    "entry changed": pair("<A,B+1>"),
    "list is shorter": where(_LIST, lambda gold, _: gold.rpartition(",")[0]),
    "list is longer": where(_LIST, lambda gold, _: f"{gold}, 7771"),
    "word denied": where(_WORD, lambda _, match: rf"\text{{not {match[1]}}}"),
    "word and another": where(_WORD, lambda _, match: rf"\text{{{match[1]} or florp}}"),
    "matrix transposed": where(re.compile(r"\\begin\{pmatrix\}[^&]*\\end\{pmatrix\}", re.DOTALL), lambda gold, _: rf"{gold}^T"),
}  # fmt: skip

RIGHT: dict[str, Rule] = {
    "as it is": lambda gold: gold,
    "period": lambda gold: f"{gold}." if not gold.endswith("\\") else None,
    "spaces": lambda gold: rf"\ {gold}\ ",
    "thin spaces": lambda gold: rf"\, {gold} \,",
    "dollars": lambda gold: f"${gold}$" if "$" not in gold else None,
    "bold": formula(r"\mathbf{G}"),
    "color": lambda gold: rf"{{\color{{red}}{gold}}}",
    "box": lambda gold: rf"\boxed{{{gold}}}",
    "check mark": lambda gold: rf"{gold} \checkmark",
    "displaystyle": lambda gold: rf"\displaystyle {gold}",
    "dfrac": lambda gold: gold.replace(r"\frac{", r"\dfrac{") if r"\frac{" in gold else None,
    "left and right": where(_PAIR, lambda _, m: rf"\left{m[1]}{m[2]}, {m[3]}\right{m[4]}"),
    "name": number("x = G"),
    "name behind": number("G = x"),
    "unit": number(r"G \text{ cm}"),
    "unit without text": number("G cm"),
    "approximately a sign of equality": number("= G"),
    "decimal zeros": where(_INTEGER, lambda gold, _: f"{gold}.00"),
    "thousands": where(_INTEGER, lambda gold, _: f"{int(gold):,}" if abs(int(gold)) > 999 else None),
    "thin thousands": where(_INTEGER, lambda gold, _: f"{int(gold):,}".replace(",", r"\,") if abs(int(gold)) > 999 else None),
    "in text": where(_INTEGER, lambda gold, _: rf"\text{{{gold}}}"),
    "solutions": where(_INTEGER, lambda gold, _: rf"{gold} \text{{ solutions}}"),
    "words in front": number(r"\text{The answer is } G"),
    "fraction with a slash": where(re.compile(r"\\frac\{([0-9]+)\}\{([0-9]+)\}"), lambda _, m: f"{m[1]}/{m[2]}"),
    "fraction extended": where(re.compile(r"\\frac\{([0-9]+)\}\{([0-9]+)\}"), lambda _,
    m: rf"\frac{{{3 * int(m[1])}}}{{{3 * int(m[2])}}}"),
    "zero added": where(_FORMULA, lambda gold, _: f"{gold}+0" if _is_formula(gold) else None),
    "one as a factor": where(_FORMULA, lambda gold, _: rf"1\cdot({gold})" if _is_formula(gold) else None),
    "halves": where(_FORMULA, lambda gold, _: rf"\frac{{2({gold})}}{{2}}" if _is_formula(gold) else None),
    "minus twice": where(_FORMULA, lambda gold, _: f"-(-({gold}))" if _is_formula(gold) else None),
    "choice in text": choice(r"\text{(G)}"),
    "choice with a word": choice(r"\text{Option G}"),
    "choice with a number": choice(r"\text{(G) } 12"),
    "list turned round": where(_LIST, lambda gold,
    _: ",".join(reversed(gold.split(","))) if not re.search("=|[0-9],[0-9]{3}", gold) else None),
    "list in braces": where(_LIST, lambda gold, _: rf"\{{{gold}\}}" if not re.search("=|[0-9],[0-9]{3}", gold) else None),
    "word in small letters": where(_WORD, lambda _, m: rf"\text{{{m[1].lower()}}}"),
    "word without text": where(_WORD, lambda _, m: m[1] if len(m[1]) > 3 else None),
}  # fmt: skip


def mutants(gold: str) -> Iterator[tuple[bool, str, str]]:
    """Yield (right, rule, answer) of each rule that changes a ground truth."""
    for right, rules in ((False, WRONG), (True, RIGHT)):
        for name, rule in rules.items():
            answer = rule(gold)
            if answer is not None and (right or answer != gold):
                yield right, name, answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="directory of veRL Parquet files or JSON files")
    parser.add_argument("--golds", nargs="*", default=[], help="ground truths by themselves")
    parser.add_argument("--limit", type=int, help="only the first LIMIT mutants")
    parser.add_argument("--show", action="store_true", help="print each mistaken verdict as a JSON line")
    parser.add_argument("--out", type=Path, help="also write the counts to this JSON file")
    arguments = parser.parse_args()
    golds = [*arguments.golds]
    if arguments.data:
        golds += [bare(gold) for group in read_golds(arguments.data).values() for (gold, *_) in group]
    made = [(gold, *mutant) for gold in dict.fromkeys(golds) if gold for mutant in mutants(gold)][: arguments.limit]
    total: Counter[tuple[bool, str]] = Counter()
    mistaken: Counter[tuple[bool, str]] = Counter()
    for gold, right, rule, answer in made:
        paid = compute_score("math", rf"So it is $\boxed{{{answer}}}$.", gold)["acc"] == 1.0
        total[right, rule] += 1
        if paid != right:
            mistaken[right, rule] += 1
            if arguments.show:
                print(json.dumps({"rule": rule, "right": right, "gold": gold, "answer": answer}))
    rows = [
        [rule, "right" if right else "wrong", f"{count}", f"{mistaken[right, rule]}"]
        for (right, rule), count in total.items()
    ]
    rows += [[f"all {word}", word, f"{sum(n for (r, _), n in total.items() if r is right)}",
    f"{sum(n for (r, _), n in mistaken.items() if r is right)}"]
             for right, word in ((False, "wrong"), (True, "right"))]  # fmt: skip
    print(text_table(rows, ["rule", "mutants", "number", "mistaken"], "llrr"))
    if arguments.out:
        arguments.out.write_text(
            json.dumps(
                [dict(zip(("rule", "mutants", "number", "mistaken"), row, strict=True)) for row in rows], indent=1
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
