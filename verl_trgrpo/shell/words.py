"""Expand the words of a bash script: variables, defaults, arrays, quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from verl_trgrpo.common.secrets import names_secret
from verl_trgrpo.shell.numbers import Numbers, is_int
from verl_trgrpo.shell.state import MARK, Reasons, State
from verl_trgrpo.shell.tree import matches, parse_bash, short, source_of

if TYPE_CHECKING:
    from tree_sitter import Node

_ESCAPED = re.compile(r"\\(\n)?(.?)", re.DOTALL)
_MOST_FIELDS, _MOST_TEXT = 50_000, 10_000


class Words:
    """Expands words over a state that their script changes.

    Args:
        name: of the script, ``$0``.
        state: variables, arguments and directory.
        environment: variables from outside; those with the name of a secret stay unknown.
        printed: returns what a command substitution prints.
    """

    def __init__(self, name: str, state: State, environment: Mapping[str, str], printed: Callable[[Node], str]) -> None:
        self.name, self.state, self.environment = name, state, environment
        self.reasons = Reasons()
        self.first_line, self.takes_arguments = 1, False
        self._spread = 0
        self._printed = printed
        self.numbers = Numbers(lambda node: self.text(node, True), self._text_in, self._set_number)

    def line(self, node: Node) -> int:
        """Return the line of a node in the script."""
        return self.first_line + node.start_point[0]

    def unknown(self, node: Node, why: str) -> str:
        """Return a text that is not known for a reason."""
        return self.reasons.mark(self.line(node), why)

    def _text_in(self, name: str) -> str:
        value = self.value(name)
        return value if isinstance(value, str) else ""

    def _set_number(self, node: Node, name: str, number: int | None) -> None:
        unknown = self.unknown(node, f"`{short(node)}` is not known")
        self.state.variables[name] = unknown if number is None else str(number)

    def fields(self, nodes: Sequence[Node]) -> list[str]:
        """Return the words that some nodes become, after expansion and splitting."""
        found: list[str] = []
        for node in self._braced(nodes):
            if spread := re.fullmatch(r"\{(-?\d{1,6})\.\.(-?\d{1,6})\}", source_of(node)):
                low, high = int(spread[1]), int(spread[2])
                step = 1 if low <= high else -1
                found += map(str, range(low, high + step, step)[:_MOST_FIELDS])
                continue
            built, kept = [""], False
            for parts, quoted in self._parts(node, False):
                if parts:
                    built[-1] += parts[0]
                    built += parts[1:]
                    kept |= quoted
            if len(built) == 1 and self._is_unset(built[0]) and not kept and node.type != "concatenation":
                continue  # a variable that is not set, without quotes, is not a word
            found += [word for word in built if word or kept]
        return found

    def _braced(self, nodes: Sequence[Node]) -> Iterator[Node]:
        """Yield nodes, one with braces such as `{a,b}.parquet` as the words that bash makes of it before all else."""
        for node in nodes:
            words = braced(source_of(node)) if node.type in ("word", "concatenation") else []
            self._spread += len(words)
            if len(words) < 2 or self._spread > _MOST_FIELDS:
                yield node
                continue
            outer, self.first_line = self.first_line, self.line(node)
            for word in words:
                yield from parse_bash(f"echo {word}").named_children[0].named_children[1:]
            self.first_line = outer

    def _separator(self) -> str:
        """Return what joins the items of `"${A[*]}"`: the first character of IFS."""
        given = self.value("IFS")
        return " " if given is None or isinstance(given, dict) else given if MARK.search(given) else given[:1]

    def _is_unset(self, word: str) -> bool:
        return "is not set" in self.reasons.of(word) and bool(MARK.fullmatch(word))

    def text(self, node: Node, in_test: bool = False) -> str:
        """Return the one text that a node becomes; in a test, a variable that is not set is empty."""
        text = "".join(" ".join(parts) for parts, _ in self._parts(node, True))
        if in_test:
            text = MARK.sub(lambda found: "" if self._is_unset(found[0]) else found[0], text)
        return text

    def _parts(self, node: Node, joined: bool) -> Iterator[tuple[list[str], bool]]:
        """Yield the parts of a word, each as fields, of which the first continues the part before, and whether it is quoted.

        With `joined` nothing is split, as in an assignment.
        """
        text, kind = source_of(node), node.type
        if kind in ("raw_string", "ansi_c_string"):
            plain = text[1:-1] if kind == "raw_string" else text[2:-1].replace("\\n", "\n").replace("\\t", "\t")
            yield [plain], True
        elif kind in ("string", "translated_string"):
            yield from self._quoted(node)
        elif kind in ("concatenation", "command_name"):
            for child in node.children:
                yield from self._parts(child, joined)
        elif kind in ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"):
            values = self._expansion(node)
            if joined:
                yield [" ".join(values)], False
            else:
                yield [each for value in values for each in re.split(r"\s+", value)], False
        elif kind == "process_substitution":
            yield [self.unknown(node, f"`{short(node)}` is not run")], False
        elif kind == "array":
            yield self.fields(node.named_children), True
        else:
            begins = not node.prev_sibling or node.parent is None or node.parent.type != "concatenation"
            home = self.environment.get("HOME", "~")
            text = re.sub(r"^~(?=/|$)", lambda _: home, text) if begins else text
            yield [_ESCAPED.sub(lambda found: "" if found[1] else found[2], text)], "\\" in text

    def _quoted(self, node: Node) -> Iterator[tuple[list[str], bool]]:
        """Yield the parts of a text in double quotes; what lies between its nodes is text, too."""
        content, at = node.text or b"", node.start_byte
        begin = content.index(b'"') + 1
        for child in node.named_children:
            if between := content[begin : child.start_byte - at]:
                yield [_unescaped(between)], True
            if child.type == "string_content":
                yield [_unescaped(child.text or b"")], True
            else:
                if space := re.match(r"\s+", source_of(child)):  # the parser takes it for a part of the expansion
                    yield [space[0]], True
                values = self._expansion(child)
                several = re.search(r"^\$(@|\{@|\{\w+\[@\])", source_of(child).lstrip())
                if values or not several:
                    yield (values if several else [self._separator().join(values)]), True
                elif node.named_child_count > 1:
                    yield [""], True
            begin = child.end_byte - at
        rest = content[begin : len(content) - 1]
        if rest or not node.named_children:
            yield [_unescaped(rest)], True

    def _expansion(self, node: Node) -> list[str]:
        """Return the texts of an expansion: several for an array and for all arguments."""
        if node.type == "simple_expansion":
            return self._named(node, source_of(node.named_children[0]))
        if node.type == "expansion":
            return self._parameter(node)
        if node.type == "arithmetic_expansion":
            number = self.numbers.of(node.named_children[0]) if node.named_children else 0
            return [self.unknown(node, f"`{short(node)}` is not known") if number is None else str(number)]
        return [self._substituted(node)]

    def _substituted(self, node: Node) -> str:
        if source_of(node).lstrip().startswith("$(("):  # the parser takes a calculation in a default for a command
            calculation = parse_bash(f"X={source_of(node).lstrip()}").named_children[0].named_children[-1]
            if calculation.type == "arithmetic_expansion":
                return self._expansion(calculation)[0]
        return self._printed(node)

    def arguments(self) -> list[str]:
        self.takes_arguments = True
        return [*self.state.arguments]

    def value(self, name: str) -> str | dict[str, str] | None:
        """Return the value of a variable; None where it is not set."""
        if name in self.state.variables:
            return self.state.variables[name]
        return self.environment.get(name)

    def _named(self, node: Node, name: str) -> list[str]:
        if name in "@*":
            return self.arguments()
        if name == "#":
            return [str(len(self.arguments()))]
        if name == "0" or name == "BASH_SOURCE":
            return [self.name]
        if name.isdigit():
            arguments = self.arguments()
            if int(name) <= len(arguments):
                return [arguments[int(name) - 1]]
            return [self.unknown(node, f"${name} is not set; give ${name} behind the script's name")]
        if not name.isidentifier():
            return [self.unknown(node, f"${name} is known only while the script runs")]
        if name == "PWD" and name not in self.state.variables:
            return [self.state.directory]
        value = self.value(name)
        if value is None:
            return [self.unknown(node, f"${name} is not set, neither in the script nor here; set {name}")]
        if name not in self.state.variables and names_secret(name):
            return [self.unknown(node, f"${name} is not read, it has the name of a secret")]
        return [value] if isinstance(value, str) else [value.get("0", "")]

    def key_of(self, subscript: Node) -> str:
        key = subscript.named_children[1] if len(subscript.named_children) > 1 else None
        if key is None:
            return "0"
        text = self.text(key)
        value = self.value(text) if text.isidentifier() else None
        return value if isinstance(value, str) and is_int(value) else text

    def _parameter(self, node: Node) -> list[str]:
        """Return what ``${...}`` becomes."""
        children = node.children[1:-1]
        sign = children[0].type if children and children[0].type in ("#", "!") and len(children) > 1 else ""
        target, *rest = children[1:] if sign else children or [node]
        several, name = False, source_of(target)
        if target.type == "subscript":
            name, key = source_of(target.named_children[0]), self.key_of(target)
            held = self.value(name)
            array = held if isinstance(held, dict) else {} if held is None else {"0": held}
            several = key in ("@", "*")
            if isinstance(held, str) and MARK.search(held):
                return [held]
            if is_int(key) and int(key) < 0 and array and all(map(str.isdigit, array)):
                key = str(max(map(int, array)) + 1 + int(key))  # from the end
            if name == "BASH_SOURCE":
                array = {"0": self.name}
            values = (
                [*array] if sign == "!" else [*array.values()] if several else [array[key]] if key in array else None
            )
            if any(map(MARK.search, [key, *map(str, values or [])])) and rest:
                return [self.unknown(node, f"`{short(node)}` is not known")]
        else:
            several = name in ("@", "*")
            value = self.value(name)
            is_set = (
                several
                or name in ("0", "#", "PWD")
                or value is not None
                or (name.isdigit() and int(name) <= len(self.state.arguments))
            )
            values = self._named(target, name) if is_set else None
            if sign == "!" and values:
                return (
                    self._named(target, values[0])
                    if values[0].isidentifier()
                    else [self.unknown(node, f"`{short(node)}` is not known")]
                )
            self.takes_arguments |= name.isdigit() and name != "0"
        if sign == "#":
            return [str(len(values or []) if several else len((values or [""])[0]))]
        if not rest:
            return values if values is not None else self._named(target, name) if target.type != "subscript" else [""]
        operator, operand = rest[0].type, rest[1:]
        if operator in (":-", "-", ":=", "=", ":+", "+", ":?", "?"):
            return self._default(node, name, operator, values, operand)
        if values is None:
            values = [""] if target.type == "subscript" else self._named(target, name)
        if operator == ":" and several:
            part = re.search(r":\s*(\d+)\s*(?::\s*(\d+)\s*)?\}$", source_of(node))
            if part is None:
                return [self.unknown(node, f"`{short(node)}` is not known")]
            begin = max(0, int(part[1]) - (name in "@*"))
            return values[begin : None if part[2] is None else begin + int(part[2])]
        return [self._changed(node, value, operator, operand) for value in values]

    def _default(
        self, node: Node, name: str, operator: str, values: list[str] | None, operand: list[Node]
    ) -> list[str]:
        """Return what becomes of a variable with a text for the case that it is not set, or empty, or that it is."""
        there = values is not None and (not operator.startswith(":") or "".join(values) != "")
        if operator.endswith("?"):
            return (
                (values or [])
                if there
                else [self.unknown(node, f"${name} is not set, neither in the script nor here; set {name}")]
            )
        if there is not operator.endswith("+"):
            return values or [] if there else [""]
        if operand:
            begin, end = operand[0].start_byte - node.start_byte, len(node.text or b"") - 1
            text, at = "", begin
            for child in operand:
                text += (node.text or b"")[at : child.start_byte - node.start_byte].decode(errors="replace")
                text += self._operand(child, node.parent is not None and node.parent.type == "string")
                at = child.end_byte - node.start_byte
            text += (node.text or b"")[at:end].decode(errors="replace")
        else:
            text = ""
        if (reason := self.reasons.of(text)) and not operator.endswith("+"):
            text = self.unknown(node, f"{reason.partition(': ')[2]}; set {name} before the command")
        if operator.endswith("="):
            self.state.variables[name] = text
        return [text]

    def _operand(self, node: Node, quoted: bool) -> str:
        """Return the text of a default; within double quotes single ones do not act."""
        if quoted and node.type == "concatenation":
            return "".join(self._operand(child, quoted) for child in node.children)
        return source_of(node) if quoted and node.type == "raw_string" else self.text(node)

    def _changed(self, node: Node, value: str, operator: str, operand: list[Node]) -> str:
        """Return a text without a prefix or suffix, with parts replaced, in another case, or a part of it."""
        words = [self.text(child) for child in operand if child.is_named]
        if MARK.search("".join([value, *words])) or len(value) > _MOST_TEXT:
            return self.unknown(node, f"`{short(node)}` is not known")
        pattern = words[0] if words else ""
        ends = range(len(value) + 1)
        if operator in ("#", "##"):
            cut = [end for end in ends if matches(value[:end], pattern)]
            return value[(cut[0] if operator == "#" else cut[-1]) :] if cut else value
        if operator in ("%", "%%"):
            cut = [end for end in ends if matches(value[end:], pattern)]
            return value[: (cut[-1] if operator == "%" else cut[0])] if cut else value
        if operator in ("/", "//") and not set(pattern) & set("*?["):
            return value.replace(pattern, words[1] if len(words) > 1 else "", -1 if operator == "//" else 1)
        if operator in ("^^", ",,"):
            return value.upper() if operator == "^^" else value.lower()
        numbers = [int(word) for word in words if is_int(word)]
        if operator == ":" and numbers and numbers[0] >= 0 and len(numbers) == len(words):
            return value[numbers[0] :][: numbers[1] if len(numbers) > 1 else None]
        return self.unknown(node, f"`{short(node)}` is not known")


_BRACED = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|\$\{[^{}]*\}|\$\([^()]*\)|[{},]", re.DOTALL)  # quoted; ${x}; {
_MOST_WORDS = 1000


def braced(word: str) -> list[str]:
    """Return the words that bash makes of the commas in the braces of a word: itself where there are none."""
    done, waiting = list[str](), [word]
    while len(word) < _MOST_TEXT and waiting and len(done) + len(waiting) <= _MOST_WORDS:
        text = waiting.pop()
        parts = _first_braces(text)
        if parts:
            before, inner, after = parts
            waiting += [before + each + after for each in reversed(inner)]
        else:
            done.append(text)
    return done if not waiting else [word]


def _first_braces(text: str) -> tuple[str, list[str], str] | None:
    """Return what stands before, between the commas of, and behind the first braces with a comma, or None."""
    opened: list[list[int]] = []  # of each open brace its place and those of its commas
    found: list[int] = []
    for match in _BRACED.finditer(text):
        at = match.start()
        if match[0] == "{":
            opened.append([at])
        elif match[0] == "," and opened:
            opened[-1].append(at)
        elif match[0] == "}" and opened:
            places = [*opened.pop(), at]
            if len(places) > 2 and (not found or places[0] < found[0]):
                found = places
            if not opened and found:
                break
    if not found:
        return None
    inner = [text[begin + 1 : end] for begin, end in pairwise(found)]
    return text[: found[0]], inner, text[found[-1] + 1 :]


def _unescaped(content: bytes) -> str:
    """Return a text in double quotes without the backslashes that act there."""
    return re.sub(
        r'\\([$`"\\\n])', lambda found: "" if found[1] == "\n" else found[1], content.decode(errors="replace")
    )
