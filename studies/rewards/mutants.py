"""Rules that change a ground truth, wrong or right by construction, for each reward; `reward_mutants.py` and tests use them."""

import json
import re
import string
from collections.abc import Callable, Iterator
from fractions import Fraction
from random import Random
from typing import Any

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
_MATRIX = re.compile(r"\\begin\{pmatrix\}[^&]*\\end\{pmatrix\}", re.DOTALL)
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
    top, _, bottom = gold.removeprefix("-").removeprefix(r"\frac{").removesuffix("}").partition("}{")
    return (-1 if gold[0] == "-" else 1) * Fraction(top) / Fraction(bottom or 1)


def _other_value(change: Callable[[Fraction], Fraction]) -> Rule:
    def rule(gold: str, _: re.Match[str]) -> str | None:
        if (other := change(value := _value(gold))) == value:
            return None
        return f"{other}" if other.denominator == 1 else rf"\frac{{{other.numerator}}}{{{other.denominator}}}"

    return where(_NUMBER, rule)


def _swapped_brackets(gold: str, match: re.Match[str]) -> str:
    return f"{'[' if match[1] == '(' else '('}{match[2]},{match[3]}{match[4]}"


def _swapped(gold: str, match: re.Match[str]) -> str | None:
    return (
        f"{match[1]}{match[3].strip()},{match[2].strip()}{match[4]}" if match[2].strip() != match[3].strip() else None
    )


def _is_formula(gold: str) -> bool:
    """Return whether a gold is not a number in any spelling: of a number, arithmetic that is left to do is refused."""
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
    "matrix transposed": where(_MATRIX, lambda gold, _: rf"{gold}^T"),
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
    "percent sign left out": where(re.compile(r"(-?[0-9.]+)\\?%"), lambda _, m: m[1]),
    "name of words": number(r"\text{Answer} = G"),
    "name of a tuple": where(_PAIR, lambda gold, m: f"P={gold}" if m[1] + m[4] == "()" else None),
    "name of a matrix": where(_MATRIX, lambda gold, _: rf"\mathbf{{A}} = {gold}"),
    "array": where(_MATRIX, lambda gold, _: re.sub(r"\\end\{pmatrix\}", r"\\end{array}\\right)",
    gold.replace(r"\begin{pmatrix}", r"\left(\begin{array}{ccc}"))),
    "degree sign": lambda gold: gold.replace(r"^\circ", "°") if r"^\circ" in gold else None,
    "root sign": where(re.compile(r"(-?[0-9]*)\\sqrt\{([0-9]+)\}"), lambda _, m: f"{m[1]}√{m[2]}"),
    "word in small letters": where(_WORD, lambda _, m: rf"\text{{{m[1].lower()}}}"),
    "word without text": where(_WORD, lambda _, m: m[1] if len(m[1]) > 3 else None),
}  # fmt: skip


# --- Knights and Knaves: a ground truth is a list of (name, role) ---------------------------------------------------------

Claims = list[tuple[str, str]]
_OTHER = {"knight": "knave", "knave": "knight"}


def _claims(claims: Claims, between: str = "\n", template: str = "{} is a {}") -> str:
    return between.join(template.format(name, role) for name, role in claims)


def _changed(change: Callable[[str, str], str]) -> Callable[[Claims], str]:
    """Return a rule that writes the first claim in another way."""
    return lambda claims: "\n".join([change(*claims[0]), *_claims(claims[1:]).splitlines()])


KK_WRONG: dict[str, Callable[[Claims], str | None]] = {
    "one role": _changed(lambda name, role: f"{name} is a {_OTHER[role]}"),
    "all roles": lambda claims: _claims([(name, _OTHER[role]) for name, role in claims]),
    "names exchanged": lambda claims: _claims([(a, claims[k - 1][1]) for k, (a, _) in enumerate(claims)])
    if len({role for _, role in claims}) > 1 and claims[0][1] != claims[-1][1] else None,
    "one left out": lambda claims: _claims(claims[1:]),
    "a stranger": lambda claims: _claims([*claims, ("Xerxes", "knight")]),
    "both roles": _changed(lambda name, role: f"{name} is a {role}\n{name} is a {_OTHER[role]}"),
    "or the other": _changed(lambda name, role: f"{name} is a {role} or a {_OTHER[role]}"),
    "or the other, behind": _changed(lambda name, role: f"{name} is a {role}, or a {_OTHER[role]}"),
    "denied": _changed(lambda name, role: f"{name} is not a {role}"),
    "not": _changed(lambda name, role: f"not {name} is a {role}"),
    "false": _changed(lambda name, role: f"{name} is a {role} is false"),
    "zero": _changed(lambda name, role: f"{name} is a {role} (0)"),
    "maybe": _changed(lambda name, role: f"{name} is maybe a {role}"),
    "a question": _changed(lambda name, role: f"{name} is a {role}?"),
    "a condition": lambda claims: _claims(claims, " if ") if len(claims) > 1 else None,
    "an alternative": lambda claims: _claims(claims, " or ") if len(claims) > 1 else None,
    "a consequence": lambda claims: _claims(claims, " => ") if len(claims) > 1 else None,
    "of the kind": _changed(lambda name, role: f"{name} is a {role}like person"),
    "everyone": lambda claims: f"Everyone is a {claims[0][1]}",
    "two names": lambda claims: f"{claims[0][0]} and {claims[1][0]} is a {claims[0][1]}" if len(claims) > 1 else None,
}  # fmt: skip

KK_RIGHT: dict[str, Callable[[Claims], str | None]] = {
    "lines": _claims,
    "sentence": lambda claims: f"{_claims(claims, ', ')}.",
    "and": lambda claims: _claims(claims, " and "),
    "one line": lambda claims: _claims(claims, " "),
    "the": lambda claims: _claims(claims, ", ", "{} is the {}"),
    "no article": lambda claims: _claims(claims, template="{} is {}"),
    "colon": lambda claims: _claims(claims, template="{}: {}"),
    "bold list": lambda claims: _claims(claims, template="- **{}** is a **{}**"),
    "numbers": lambda claims: " ".join(f"({k}) {name} is a {role}" for k, (name, role) in enumerate(claims, start=1)),
    "other order": lambda claims: _claims(claims[::-1]),
    "capitals": lambda claims: _claims(claims).upper(),
}

# --- Search: a ground truth is a list of strings --------------------------------------------------------------------------

SEARCH_WRONG: dict[str, Callable[[list[str]], str | None]] = {
    "a word behind": lambda golds: f"{golds[0]} zzqq",
    "a word in front": lambda golds: f"zzqq {golds[0]}",
    "or": lambda golds: f"{golds[0]} or zzqq",
    "denied": lambda golds: f"not {golds[0]}",
    "all at once": lambda golds: " ".join(golds) if len(golds) > 1 else None,
    "a letter behind": lambda golds: f"{golds[0]}q",
    "a letter less": lambda golds: golds[0][:-1],
    "nothing": lambda golds: "",
    "a sentence": lambda golds: f"The answer is {golds[0]}",
    "a word less": lambda golds: golds[0].rpartition(" ")[0] or None,
}

SEARCH_RIGHT: dict[str, Callable[[list[str]], str | None]] = {
    "as it is": lambda golds: golds[0],
    "an alias": lambda golds: golds[-1],
    "capitals": lambda golds: golds[0].upper(),
    "an article": lambda golds: f"the {golds[0]}",
    "a full stop": lambda golds: f"{golds[0]}.",
    "spaces": lambda golds: f"\n {golds[0].replace(' ', '  ')} \n",
    "quotes": lambda golds: f'"{golds[0]}"',
}

# --- reasoning-gym: a ground truth is the JSON of a row -------------------------------------------------------------------


def _answer(truth: str) -> str:
    return str(json.loads(truth)["entry"]["answer"])


def beside(template: str) -> Callable[[str], str | None]:
    """Return a rule that puts the answer of a row into a template."""
    return lambda truth: template.replace("G", _answer(truth))


GYM_WRONG: dict[str, Callable[[str], str | None]] = {
    "or": beside("G or G7"),
    "either": beside("either G or 7"),
    "denied": beside("not G"),
    "incorrect": beside("G is incorrect"),
    "nan": lambda truth: "nan",
    "infinite": lambda truth: "inf",
    "nothing": lambda truth: "",
    "empty list": lambda truth: "[]",
    "none": lambda truth: "None",
    "one more": lambda truth: str(int(_answer(truth)) + 1) if _INTEGER.fullmatch(_answer(truth)) else None,
    "ten times": lambda truth: f"{_answer(truth)}0" if _INTEGER.fullmatch(_answer(truth)) and int(_answer(truth)) else None,
    "a letter behind": beside("Gq"),
    "long": lambda truth: "9" * 4000,
}  # fmt: skip

GYM_RIGHT: dict[str, Callable[[str], str | None]] = {
    "as it is": beside("G"),
    "spaces": beside("  G \n"),
    "an earlier answer": beside("7777</answer> no, <answer>G"),
}
GYM_TASKS = ("chain_sum", "gsm_symbolic", "leg_counting", "letter_counting", "products", "gcd")

# --- All ------------------------------------------------------------------------------------------------------------------

TAGS = "<think></think><answer>{}</answer>"
# By reward: wrong rules, right rules, and the response that states an answer.
REWARDS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "math": (WRONG, RIGHT, r"So it is $\boxed{{{}}}$."),
    "kk": (KK_WRONG, KK_RIGHT, TAGS),
    "search": (SEARCH_WRONG, SEARCH_RIGHT, TAGS),
    "gym": (GYM_WRONG, GYM_RIGHT, TAGS),
}


def mutants(reward: str, gold: Any) -> Iterator[tuple[bool, str, str]]:
    """Yield (right, rule, response) of each rule that changes a ground truth."""
    wrong, right, template = REWARDS[reward]
    for is_right, rules in ((False, wrong), (True, right)):
        for name, rule in rules.items():
            answer = rule(gold)
            if answer is not None and (is_right or answer != gold):
                yield is_right, name, template.format(answer)


def scored_as(reward: str, gold: Any) -> tuple[str, Any]:
    """Return the data source and the ground truth that `compute_score` takes."""
    if reward == "kk":
        return "kk_logic", "\n".join(f"({k}) {name} is a {role}" for k, (name, role) in enumerate(gold, start=1))
    if reward == "gym":
        return f"reasoning_gym/{json.loads(gold)['task']}", gold
    return {"math": "math", "search": "search_qa"}[reward], gold


def generated(reward: str, random: Random) -> Any:
    """Return a ground truth, drawn with `random`."""
    return {"math": _math_gold, "kk": _puzzle, "search": _names, "gym": _gym_row}[reward](random)


def _math_gold(random: Random) -> str:
    a, b = random.randint(-999, 999), random.randint(-999, 999)
    d, e = random.randint(2, 60), random.randint(2, 30)
    letter, word = random.choice("abcxyz"), random.choice(["east", "Evelyn", "even", "hyperbola"])
    return random.choice([
        f"{a}", f"{a * 10**6 + b}", f"{a}.{d}", rf"\frac{{{abs(a) + 1}}}{{{d}}}", rf"{d}\sqrt{{{e * e + 1}}}", f"{d}{letter}+{e}",
        f"{letter}^{{{d}}}-{e}", rf"\frac{{{letter}+{d}}}{{{e}}}", rf"{d}\pi", f"2^{{{d * e}}}-{d}", rf"\sin({d}{letter})",
        f"({a},{a + d})", f"[{a},{a + d}]", f"({a}, {a + d}]", f"{a},{a + d},{a + d + e}", random.choice("ABCDE"),
        rf"\text{{{word}}}", rf"{d}^\circ", rf"\begin{{pmatrix}} {a} \\ {a + d} \end{{pmatrix}}", f"{d}!", rf"{e}\%",
    ])  # fmt: skip


def _word(random: Random) -> str:
    # Neither a claim, an article nor a hedge.
    return "".join(random.choices(string.ascii_lowercase.replace("q", ""), k=random.randint(5, 9))).capitalize()


def _puzzle(random: Random) -> Claims:
    names = dict.fromkeys(_word(random) for _ in range(random.randint(1, 7)))
    return [(name, random.choice(["knight", "knave"])) for name in names]


def _names(random: Random) -> list[str]:
    words = [" ".join(_word(random) for _ in range(random.randint(1, 3))) for _ in range(random.randint(1, 4))]
    return [*dict.fromkeys([*words, str(random.randint(1000, 2000))])]


def _gym_row(random: Random) -> str:
    import reasoning_gym  # slow import

    task = random.choice(GYM_TASKS)
    [entry] = reasoning_gym.create_dataset(task, size=1, seed=random.randint(0, 10**6))
    return json.dumps({"task": task, "config": {}, "entry": entry}, default=str)
