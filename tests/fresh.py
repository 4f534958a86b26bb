"""Code in processes that have imported neither veRL nor this package, but all of what veRL imports that takes long."""

import contextlib
import io
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

# Each process is a fork of one that has imported these, which takes longer than importing veRL after them.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "transformers", "ray", "tensordict", "datasets", "peft"])


class Printed(NamedTuple):
    """What the code wrote to standard output and to standard error."""

    out: str
    error: str


def run_fresh(code: str, environment: dict[str, str] | None = None) -> Printed:
    """Run `code` with these variables and no other of :data:`verl_trgrpo.verl_plugin.cpu.CPU_ENVIRONMENT`."""
    from verl_trgrpo.verl_plugin.cpu import CPU_ENVIRONMENT

    with ProcessPoolExecutor(1, _CONTEXT) as pool:
        return pool.submit(_run, code, environment or {}, tuple(CPU_ENVIRONMENT)).result()


def _run(code: str, environment: dict[str, str], without: tuple[str, ...]) -> Printed:
    os.chdir("/")
    for name in without:
        os.environ.pop(name, None)
    os.environ.update(environment)
    _forget_vllm_alias()
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
        exec(code, {"__name__": "__main__"})
    return Printed(out.getvalue(), error.getvalue())


def _forget_vllm_alias() -> None:
    """Take back what ``provide_vllm_distribution`` has done to the process that started this one."""
    sys.path[:] = [path for path in sys.path if "vllm-alias" not in path]
    paths = os.environ.pop("PYTHONPATH", "").split(os.pathsep)
    if kept := [path for path in paths if path and "vllm-alias" not in path]:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
