"""Classes of integers, in words, as a congruence or with a letter that runs over the integers: `n` odd, `n=2k+1`."""

from __future__ import annotations

import re

from verl_trgrpo.judge.forms import Form
from verl_trgrpo.judge.grammar import Integers
from verl_trgrpo.judge.spelling import AND, OR

_VARIABLE = r"[a-zA-Z](?:_\w)?"
_CONGRUENCE = re.compile(
    rf"(?P<name>{_VARIABLE})(?P<not>\\not ?)?\\equiv ?"
    rf"(?P<residues>(?:\\pm ?)?-?[0-9]{{1,9}}(?:,[{AND}{OR}]?-?[0-9]{{1,9}}){{0,20}})"
    r" ?\\pmod\{(?P<modulus>[1-9][0-9]{0,8})\}"
)  # n\equiv1,5\pmod{6}
_DIVIDES = re.compile(rf"(?P<modulus>[1-9][0-9]{{0,8}})\\(?P<not>n)?mid ?(?P<name>{_VARIABLE})")  # 3\mid n
_LINEAR = re.compile(
    r"(?P<front>-?[0-9]{1,9}(?=[+-]))?(?P<step>[+-]?[0-9]{0,9})(?P<letter>[jklmn])(?P<rest>[+-][0-9]{1,9})?"
)  # 6k+1; 1+6k
_POWER = re.compile(r"(?P<base>[0-9]{1,9})\^(?P<letter>[jklmn])")  # 2^k
ALL_INTEGERS = "0 mod 1"
_MOST = 1000


def class_in_words(written: Integers) -> str | None:
    """Return the class that words write, in the form in which classes are compared."""
    if written.multiple:
        kind, number = written.multiple
        if kind == "power":
            return f"powers of {int(number)}"
        return _residues({0}, int(number), others=kind != "multiple")
    words = {*written.words}
    parity = {"odd": 1, "even": 0}
    if len(words) == 1 and words <= {*parity}:
        return _residues({parity[word] for word in words}, 2)
    return " ".join(sorted(words))


def is_class(form: Form) -> bool:
    """Return whether a form says that it is a class of integers, not a formula with a letter."""
    return form.kind == "integers" or (form.kind == "relation" and _of_relation(form.text) is not None)


def class_name(form: Form) -> str | None:
    """Return the letter that stands for the integers of a class."""
    match = (_CONGRUENCE.fullmatch(form.text) or _DIVIDES.fullmatch(form.text)) if form.kind == "relation" else None
    return match["name"] if match else form.name


def several_residues(text: str) -> Form | None:
    r"""Read a congruence, `n\equiv\pm1\pmod{6}`; None where it has one residue, or is none."""
    match = _CONGRUENCE.fullmatch(text)
    found = _of_relation(text) if match and not match["residues"].lstrip("-").isdigit() else None
    return Form("integers", found, name=match["name"]) if match and found else None


def integers_of(form: Form, letters: frozenset[str] | None = None) -> str | None:
    r"""Return the class of integers that a form is; None if it is none.

    Args:
        form: also a formula such as `6k+1`, with or without a name.
        letters: letters that are known to run over the integers; None for those that usually do.
    """
    if form.kind == "integers":
        return form.text
    if form.kind == "relation":
        return _of_relation(form.text)
    if form.kind == "list" and form.items:
        return _union([integers_of(item) for item in form.items])
    if form.kind != "value" or not (form.name is None or re.fullmatch(_VARIABLE, form.name)):
        return None
    match = _LINEAR.fullmatch(form.text) or _POWER.fullmatch(form.text)
    if match is None or match["letter"] == form.name or (letters is not None and match["letter"] not in letters):
        return None
    if "base" in match.re.groupindex:
        return f"powers of {int(match['base'])}"
    step, rest = match["step"].strip("+"), match["rest"] or ""
    if match["front"] and rest:
        return None
    return _residues({int(match["front"] or rest or 0)}, abs(int(step if step.strip("-") else step + "1")))


def _of_relation(text: str) -> str | None:
    if match := _DIVIDES.fullmatch(text):
        return _residues({0}, int(match["modulus"]), others=bool(match["not"]))
    if (match := _CONGRUENCE.fullmatch(text)) is None:
        return None
    written = match["residues"]
    residues = {int(each) for each in re.findall(r"-?[0-9]+", written)}
    residues |= {-each for each in residues if r"\pm" in written}
    return _residues(residues, int(match["modulus"]), others=bool(match["not"]))


def _union(classes: list[str | None]) -> str | None:
    """Return the union of classes of one modulus."""
    found = [re.fullmatch(r"([0-9,]+) mod ([0-9]+)", each or "") for each in classes]
    moduli = {match[2] if match else "" for match in found}
    if len(moduli) != 1 or "" in moduli:
        return None
    return _residues({int(each) for match in found if match for each in match[1].split(",")}, int(moduli.pop()))


def _residues(residues: set[int], modulus: int, others: bool = False) -> str | None:
    """Return residues, or all others, with their smallest modulus: 1 and 3 modulo 4 are 1 modulo 2."""
    if not modulus or (others and modulus > _MOST):
        return None
    residues = {each % modulus for each in residues}
    residues = {*range(modulus)} - residues if others else residues
    for smaller in range(1, modulus if modulus <= _MOST else 1):
        if modulus % smaller == 0 and len({each % smaller for each in residues}) * (modulus // smaller) == len(
            residues
        ):
            return _residues({each % smaller for each in residues}, smaller)
    return f"{','.join(map(str, sorted(residues)))} mod {modulus}"
