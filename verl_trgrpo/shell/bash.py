"""Follow a bash script up to the words of each command, without running any of them.

Variables, arrays, functions, conditions and loops are followed as bash would. Of programs, only those that compute a text of
their words are (``echo``, ``dirname``, ``basename``, ``pwd``). A text that depends on anything else is unknown, for a reason with
a line.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from verl_trgrpo.shell.conditions import Conditions
from verl_trgrpo.shell.state import MARK, State, Value, common
from verl_trgrpo.shell.tree import errors_of, matches, parse_bash, short, source_of
from verl_trgrpo.shell.words import Words

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_STEPS, _MOST_TEXT, _MOST_DEPTH = 50_000, 100_000, 60
_SEQUENCES = ("program", "do_group", "else_clause", "redirected_statement", "variable_assignments", "ERROR")
_NO_STATEMENTS = ("comment", "file_redirect", "heredoc_redirect", "herestring_redirect")
_RESERVED = ("fi", "done", "esac", "then", "else", "elif", "do")
_NO_WORDS = (*_NO_STATEMENTS, "variable_assignment")


class _LeftError(Exception):
    """The script leaves a loop, a function or itself."""

    def __init__(self, by: str) -> None:
        self.by = by


class TooLongError(ValueError):
    """The script takes more steps than are followed, as in a loop that does not end."""


class Bash:
    """A script that is followed.

    Args:
        name: of the script, ``$0``.
        arguments: of the script, ``$1`` and so on.
        environment: variables from outside; those with the name of a secret stay unknown.
        on_command: gets the line and the words of each program that the script would run.

    Attributes:
        unparsed: lines that are not bash.
        ended: the line in which ``exit`` has ended the script, 0 if none has.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        on_command: Callable[[int, list[str]], None],
    ) -> None:
        self.on_command, self.unparsed, self.ended = on_command, list[int](), 0
        state = State(arguments=[*arguments], directory=environment.get("PWD", ""))
        self.words = Words(name, state, environment, self._printed)
        self._conditions = Conditions(self.words)
        self._functions: dict[str, Node] = {}
        self._locals: list[dict[str, Value | None]] = []  # of each function that runs, what they hide
        self._output: list[str] | None = None  # of a command substitution
        self._steps, self._depth = 0, 0

    def follow(self, script: str, first_line: int = 1) -> None:
        """Follow a script from its first command to its last.

        Raises:
            TooLongError: it takes more steps than are followed.
        """
        before, self.words.first_line = self.words.first_line, first_line
        root = parse_bash(script)
        self.unparsed += [self.words.line(node) for node in errors_of(root)]
        try:
            self._run(root)
        except _LeftError:
            pass
        except RecursionError as error:
            raise TooLongError(f"line {first_line}: is nested too deeply") from error
        finally:
            self.words.first_line = before

    def reason(self, word: str) -> str:
        """Return why a word is not known; "" where it is."""
        return self.words.reasons.of(word)

    def shown(self, word: str) -> str:
        """Return a word for a message, with ``...`` in place of what is not known."""
        return MARK.sub("...", word)

    # Statements. Each returns whether it succeeded, None where that is not known.

    def _run(self, node: Node) -> bool | None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise TooLongError(f"line {self.words.line(node)}: takes more than {_MOST_STEPS:,} steps")
        method = getattr(self, f"_run_{node.type}", None)
        if method:
            return method(node)
        if node.type in _SEQUENCES:
            return self._run_all(node.named_children)
        return None

    def _run_all(self, nodes: Sequence[Node]) -> bool | None:
        status: bool | None = True
        for node in nodes:
            if node.type not in _NO_STATEMENTS:
                status = self._run(node)
        return status

    def _run_compound_statement(self, node: Node) -> bool | None:
        if node.children[0].type != "((":
            return self._run_all(node.named_children)
        number = self.words.numbers.of(node.named_children[0]) if node.named_children else None
        return None if number is None else number != 0

    def _run_subshell(self, node: Node) -> bool | None:
        with self._apart():
            return self._run_all(node.named_children)

    def _run_pipeline(self, node: Node) -> bool | None:
        printed = len(self._output or ())
        for child in node.named_children:
            with self._apart():
                self._run_all([child])
        if self._output is not None:
            del self._output[printed:]  # what one command prints, the next one reads
            self._output.append(self.words.unknown(node, f"`{short(node)}` is not run"))
        return None

    def _run_negated_command(self, node: Node) -> bool | None:
        status = self._run_all(node.named_children)
        return None if status is None else not status

    def _run_list(self, node: Node) -> bool | None:
        [first, second] = [child for child in node.named_children if child.type != "comment"]
        status, wanted = self._run(first), any(child.type == "&&" for child in node.children)
        if status is None:
            return self._either([[second], []])
        return self._run(second) if status is wanted else status

    def _run_if_statement(self, node: Node) -> bool | None:
        self._conditions.because = ""
        children = [child for child in node.children if child.type != "comment"]
        then = next((i for i, child in enumerate(children) if child.type == "then"), len(children))
        status = self._run_all([child for child in children[:then] if child.is_named])
        rest = [child for child in children[then:] if child.is_named]
        others = [child for child in rest if child.type in ("elif_clause", "else_clause")]
        body = [child for child in rest if child not in others]
        if status:
            return self._run_all(body)
        return self._either([body, others]) if status is None else self._else(others)

    def _else(self, clauses: Sequence[Node]) -> bool | None:
        """Run the first of some ``elif`` and ``else`` clauses whose condition holds."""
        if not clauses:
            return True
        if clauses[0].type == "else_clause":
            return self._run_all(clauses[0].named_children)
        children = clauses[0].children
        then = next((i for i, child in enumerate(children) if child.type == "then"), len(children))
        status = self._run_all([child for child in children[:then] if child.is_named])
        body = [child for child in children[then:] if child.is_named]
        if status is None:
            return self._either([body, clauses[1:]])
        return self._run_all(body) if status else self._else(clauses[1:])

    def _either(self, branches: Sequence[Sequence[Node]]) -> bool | None:
        """Run branches of which one is taken: what they leave behind in common is known."""
        before, because, ends, left = self.words.state, self._conditions.because, [], []
        for nodes in branches:
            self.words.state = before.copy()
            try:
                (self._else if nodes and nodes[0].type in ("elif_clause", "else_clause") else self._run_all)(nodes)
                ends.append(self.words.state)
            except _LeftError as leaving:
                left.append(leaving)
        if not ends:
            raise left[0]
        self.words.state, node = ends[0], next((node for nodes in branches for node in nodes), None)
        for name in dict.fromkeys(name for end in ends for name in end.variables):
            values = [end.variables.get(name) for end in ends]
            if node is not None and any(value != values[0] for value in values):
                unknown = self.words.unknown(
                    node, f"what is set here depends on a condition that is not known{because}"
                )
                self.words.state.variables[name] = common(values, unknown)
        return None

    def _run_while_statement(self, node: Node) -> bool | None:
        body = node.named_children[-1]
        condition = node.named_children[:-1]
        until = node.children[0].type == "until"
        while (status := self._run_all(condition)) is not None and status is not until:
            if self._body(body):
                return True
        if status is None:
            self._either([[body], []])
        return True

    def _run_for_statement(self, node: Node) -> bool | None:
        [variable, *words], body = node.named_children[:-1], node.named_children[-1]
        values = (
            self.words.fields(words) if any(child.type == "in" for child in node.children) else self.words.arguments()
        )
        for value in values:
            self.words.state.variables[source_of(variable)] = value
            if self._body(body):
                break
        return True

    def _run_c_style_for_statement(self, node: Node) -> bool | None:
        parts: list[list[Node]] = [[]]
        for child in node.children[2:]:
            if child.type == "))":
                break
            if child.type == ";":
                parts.append([])
            elif child.is_named:
                parts[-1].append(child)
        start, condition, step = (*parts, [], [], [])[:3]
        for each in start:
            self.words.numbers.of(each)
        while condition and (number := self.words.numbers.of(condition[-1])):
            if self._body(node.named_children[-1]):
                return True
            for each in step:
                self.words.numbers.of(each)
        if not condition or number is None:
            self._either([[node.named_children[-1]], []])
        return True

    def _body(self, node: Node) -> bool:
        """Run the body of a loop once; return True if it leaves the loop."""
        try:
            self._run(node)
        except _LeftError as left:
            if left.by not in ("break", "continue"):
                raise
            return left.by == "break"
        return False

    def _run_case_statement(self, node: Node) -> bool | None:
        word, self._conditions.because = self.words.text(node.named_children[0]), ""
        items = [n for n in node.named_children if n.type == "case_item"]
        bodies = []
        for item in items:
            end = next(i for i, child in enumerate(item.children) if child.type == ")")
            patterns = [self.words.text(child) for child in item.children[:end] if child.is_named]
            bodies.append([child for child in item.children[end:] if child.is_named])
            if not MARK.search("".join([word, *patterns])) and any(matches(word, each) for each in patterns):
                return self._run_all(bodies[-1])
        return self._either([*filter(None, bodies), []]) if MARK.search(word) and any(bodies) else True

    def _run_function_definition(self, node: Node) -> bool:
        self._functions[source_of(node.named_children[0])] = node.named_children[-1]
        return True

    def _run_variable_assignment(self, node: Node) -> bool | None:
        target, value = node.named_children[0], node.named_children[1] if len(node.named_children) > 1 else None
        adds, variables = any(child.type == "+=" for child in node.children), self.words.state.variables
        name = source_of(target.named_children[0]) if target.type == "subscript" else source_of(target)
        there = variables.get(name)
        if value is not None and value.type == "array":
            array = dict(there) if adds and isinstance(there, dict) else {}
            for element in value.named_children:
                keyed = re.match(r"\[([^]]*)\]=(.*)", source_of(element), re.DOTALL)
                if keyed:
                    array[keyed[1].strip("\"'")] = re.sub(r"^(['\"])(.*)\1$", r"\2", keyed[2], flags=re.DOTALL)
                elif element.type != "comment":
                    for each in self.words.fields([element]):
                        array[str(len(array))] = each
            variables[name] = array
            return True
        text = self.words.text(value) if value is not None else ""
        if target.type == "subscript":
            array = dict(there) if isinstance(there, dict) else {}
            key = self.words.key_of(target)
            array[key] = (array.get(key, "") if adds else "") + text
            variables[name] = array
        elif adds:
            held = there if there is not None else self.words.environment.get(name, "")
            variables[name] = {**held, "0": held.get("0", "") + text} if isinstance(held, dict) else held + text
        else:
            variables[name] = text
        if isinstance(variables[name], str) and len(variables[name]) > _MOST_TEXT:
            variables[name] = self.words.unknown(node, f"${name} is too long")
        return True

    def _run_declaration_command(self, node: Node) -> bool | None:
        if self._locals and source_of(node).startswith(("local", "declare", "typeset")):
            for child in node.named_children:
                name = re.match(r"\w+", source_of(child))
                if name and child.type in ("variable_assignment", "variable_name"):
                    self._locals[-1].setdefault(name[0], self.words.state.variables.get(name[0]))
        return self._run_all([child for child in node.named_children if child.type == "variable_assignment"])

    def _run_unset_command(self, node: Node) -> bool:
        for child in node.named_children:
            self.words.state.variables.pop(source_of(child), None)
        return True

    def _run_test_command(self, node: Node) -> bool | None:
        return self._conditions.of(node.named_children[0]) if node.named_children else False

    # Commands.

    def _run_command(self, node: Node) -> bool | None:
        words = self.words.fields([child for child in node.named_children if child.type not in _NO_WORDS])
        if not words:
            return self._run_all([child for child in node.named_children if child.type == "variable_assignment"])
        name, rest = words[0], words[1:]
        if name in _RESERVED:
            self.unparsed.append(self.words.line(node))
        if name in self._functions:
            return self._call(name, rest)
        if name in _BUILTINS:
            return getattr(self, f"_do_{_BUILTINS[name]}")(node, rest)
        if (there := _is_there(words)) is not None:
            return there
        if self._output is not None:
            self._output.append(self.words.unknown(node, f"`{short(node)}` is not run"))
            return None
        self.on_command(self.words.line(node), words)
        return None

    def _call(self, name: str, arguments: list[str]) -> bool | None:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise TooLongError(f"{name} calls itself too often")
        before, self.words.state.arguments = self.words.state.arguments, arguments
        self._locals.append({})
        try:
            return self._run(self._functions[name])
        except _LeftError as left:
            if left.by != "return":
                raise
            return None
        finally:
            self.words.state.arguments = before
            for hidden, value in self._locals.pop().items():
                self.words.state.variables.pop(hidden, None)
                if value is not None:
                    self.words.state.variables[hidden] = value
            self._depth -= 1

    def _do_leave(self, node: Node, words: list[str]) -> bool:
        by = source_of(node).split()[0]
        self.ended = self.words.line(node) if by == "exit" else self.ended
        raise _LeftError(by)

    def _do_true(self, node: Node, words: list[str]) -> bool:
        return True

    def _do_false(self, node: Node, words: list[str]) -> bool:
        return False

    def _do_shift(self, node: Node, words: list[str]) -> bool:
        count = int(words[0]) if words and words[0].isdigit() else 1
        enough = count <= len(self.words.state.arguments)
        del self.words.state.arguments[: count if enough else 0]
        return enough

    def _do_set(self, node: Node, words: list[str]) -> bool:
        if "--" in words:
            self.words.state.arguments = words[words.index("--") + 1 :]
        return True

    def _do_cd(self, node: Node, words: list[str]) -> bool:
        place = words[-1] if words else self.words.environment.get("HOME", "")
        self.words.state.directory = (
            place if "\0" in place else os.path.normpath(f"{self.words.state.directory}/{place}")
        )
        if place.startswith("/"):
            self.words.state.directory = os.path.normpath(place)
        return True

    def _do_test(self, node: Node, words: list[str]) -> bool | None:
        return self._conditions.compared(words, False)

    def _do_eval(self, node: Node, words: list[str]) -> bool | None:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise TooLongError(f"line {self.words.line(node)}: eval calls itself too often")
        text = " ".join(words)
        if MARK.sub("", text).strip():  # of a program's output alone, as of `conda shell.bash hook`, nothing is known
            self.follow(text, self.words.line(node))
        self._depth -= 1
        return None

    def _do_exec(self, node: Node, words: list[str]) -> bool | None:
        if words:
            self.on_command(self.words.line(node), words)
        return None

    def _do_read(self, node: Node, words: list[str]) -> bool | None:
        self.words.takes_arguments |= source_of(node).startswith("getopts")
        for name in words:
            if name.isidentifier():
                self.words.state.variables[name] = self.words.unknown(node, f"${name} is read while the script runs")
        return None

    def _do_source(self, node: Node, words: list[str]) -> bool | None:
        return None

    def _do_print(self, node: Node, words: list[str]) -> bool:
        if self._output is not None:
            plain = source_of(node).startswith("echo") or (len(words) < 2 and not set(words[0:1]) & {"%", "\\"})
            text = " ".join(word for word in words if word not in ("-n", "-e"))
            self._output.append(text if plain else self.words.unknown(node, f"`{short(node)}` is not run"))
        return True

    def _do_path(self, node: Node, words: list[str]) -> bool:
        if self._output is None:
            return True
        name = source_of(node).split()[0]
        given = [word for word in words if not word.startswith("-")]
        if name == "pwd":
            text = self.words.state.directory
        elif not given or "\0" in given[0]:
            text = given[0] if given else ""
        elif name == "dirname":
            text = str(PurePosixPath(given[0]).parent)
        elif name == "basename":
            text = PurePosixPath(given[0]).name
            text = text.removesuffix(given[1]) if len(given) > 1 else text
        else:  # realpath, readlink -f
            text = os.path.normpath(PurePosixPath(self.words.state.directory, given[0]))
        self._output.append(text)
        return True

    def _printed(self, node: Node) -> str:
        """Return what a command substitution prints, where only words decide it."""
        before, self._output = self._output, []
        try:
            with self._apart():
                self._run_all(node.named_children)
            return "\n".join(self._output).rstrip("\n")
        finally:
            self._output = before

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Keep changes of variables, arguments and directory from what follows."""
        before, self.words.state = self.words.state, self.words.state.copy()
        try:
            yield
        except _LeftError as left:
            if left.by in ("break", "continue"):
                raise
        finally:
            self.words.state = before


# What a program or builtin of a name does here.
_BUILTINS = {
    "false": "false", "shift": "shift", "set": "set", "cd": "cd", "test": "test", "eval": "eval", "exec": "exec",
    **dict.fromkeys(("exit", "return", "break", "continue"), "leave"),
    **dict.fromkeys(("true", ":", "wait", "trap", "ulimit", "umask", "shopt", "alias", "hash"), "true"),
    **dict.fromkeys(("read", "mapfile", "readarray", "getopts"), "read"),
    **dict.fromkeys(("source", "."), "source"), **dict.fromkeys(("echo", "printf"), "print"),
    **dict.fromkeys(("pwd", "dirname", "basename", "realpath", "readlink"), "path"),
}  # fmt: skip


def _is_there(words: Sequence[str]) -> bool | None:
    """Return whether a program or a Python module is there, for a command that does nothing but ask; None for others."""
    match words:
        case ["command", "-v", name] | ["which", name]:
            return shutil.which(name) is not None
        case [program, "-c", code] if "python" in program and (asked := re.fullmatch(r"import (\w+);?", code)):
            return importlib.util.find_spec(asked[1]) is not None
    return None
