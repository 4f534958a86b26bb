"""What runs only for a bad input: its work grows no faster than the input.

The functions are found: each of the rooms that read what others made, with one text, one file's content or one value as its only
needed argument. Inputs are made of the pieces that their formats have.
"""

import importlib
import inspect
import pkgutil
from contextlib import suppress

import pytest

from tests.pattern_steps import grows
from tests.work import counted

ROOMS = ("verl_trgrpo.common.foreign", "verl_trgrpo.common.secrets", "verl_trgrpo.common.text", "verl_trgrpo.runs.references",
         "verl_trgrpo.common.typed", "verl_trgrpo.launch.log", "verl_trgrpo.launch.postmortem", "verl_trgrpo.launch.remedies",
         "verl_trgrpo.memory.crash", "verl_trgrpo.runs.hydra_messages", "verl_trgrpo.runs.overrides")  # fmt: skip
KINDS = {"str": str, "bytes | str": str, "bytes": bytes, "Any": str, "object": str}
# By name: an input of about so many characters.
INPUTS = {
    "a key twice": lambda n: "{" + ",".join(f'"{i}":0' for i in range(n // 6)) + ',"0":0}',
    "each key twice": lambda n: "{" + ",".join(f'"{i // 2}":0' for i in range(n // 6)) + "}",
    "deep": lambda n: "[" * min(n, 900),
    "not closed": lambda n: '{"a":"' + "x" * n,
    **{f"{piece!r} over and over": lambda n, piece=piece: piece * (n // len(piece)) for piece in (
        "\\", "/", "://", "a:", "@", "?a=", "&token=", "bearer ",
        "${a", "*a ", "\n", " ", "\x1b[", "a.", "0", "'", "~", "Error: ")},
}  # fmt: skip


def doors():
    """The functions, by name, with the type of their input."""
    for room in ROOMS:
        module = importlib.import_module(room)
        for name, function in vars(module).items():
            if not inspect.isfunction(function) or function.__module__ != room:
                continue
            first, *others = inspect.signature(function).parameters.values() or [None]
            if first and str(first.annotation) in KINDS and all(each.default is not each.empty for each in others):
                yield f"{room}.{name}", function, KINDS[str(first.annotation)]


DOORS = {name: (function, kind) for name, function, kind in doors()}


def test_the_doors_are_found():
    assert (
        len(DOORS) > 10
        and {"verl_trgrpo.common.foreign.parse_json", "verl_trgrpo.common.secrets.has_password"} <= DOORS.keys()
    )
    packages = {
        module.name for module in pkgutil.walk_packages(importlib.import_module("verl_trgrpo").__path__, "verl_trgrpo.")
    }
    assert packages >= {*ROOMS}


@pytest.mark.parametrize("name", DOORS)
def test_work_grows_no_faster_than_the_input(name):
    function, kind = DOORS[name]

    def call(value):
        with suppress(ValueError, OSError):
            result = function(value)
            if inspect.isgenerator(result):
                list(result)

    with counted(name.rpartition(".")[0].rpartition(".")[0]) as work:
        for what, made in INPUTS.items():

            def size(n, made=made):
                return work.of(call, made(n).encode() if kind is bytes else made(n))

            assert not grows(size), what
