"""Keep a run on one machine off the network: what it listens on is reachable from this machine alone."""

from __future__ import annotations

import functools
import importlib
import os
import secrets
import socket
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from verl_trgrpo.common.findings import InvalidInputError

_ADDRESS = "127.0.0.1"

# For a process that starts a Ray cluster or vLLM engine of its own.
LOOPBACK_ENVIRONMENT = {
    # Makes Ray take the loopback address for its node's, as it does by default on macOS and Windows; on Linux it replaces a
    # 127.0.0.1 that it is given (``ray_init._node_ip_address``) by the outer address. veRL's vLLMHttpServer, TransferQueue and
    # rendezvous listen on the address of Ray's node.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "VLLM_HOST_IP": _ADDRESS,
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}


def with_defaults(environment: Mapping[str, str], *defaults: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` with the `defaults` of variables that it lacks; one that is empty counts as missing."""
    return {name: value for each in defaults for name, value in each.items()} | {
        name: value for name, value in environment.items() if value or not any(name in each for each in defaults)
    }


def private_ray(environment: Mapping[str, str], temporary: Path = Path("/tmp")) -> dict[str, str]:
    """Return variables that keep other users of this machine out of a Ray cluster of the run's own; none that are set already.

    Ray lets everybody write into its directory, from which workers load code, and read the file in which it keeps its token.
    The directory lies in ``TMPDIR``, or in `temporary` without one.

    Raises:
        InvalidInputError: the directory cannot be made, belongs to somebody else, or others have rights in it.
    """
    variables = {}
    if not environment.get("RAY_AUTH_TOKEN") and not environment.get("RAY_AUTH_TOKEN_PATH"):
        variables["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    if not environment.get("RAY_TMPDIR"):
        variables["RAY_TMPDIR"] = str(_private(Path(environment.get("TMPDIR") or temporary).absolute()))
    return variables


def _private(temporary: Path) -> Path:
    """Return `temporary` if it is a directory of this user alone, else such a directory in it."""
    # Short: a socket's path has at most 107 characters, of which Ray's part takes 69.
    directory, remedy = temporary / f"trgrpo-{os.getuid()}", "set RAY_TMPDIR to one that is"
    try:
        if _of_this_user_alone(temporary.stat()):
            return temporary
        if (
            temporary.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH
        ):  # others could put theirs in its place
            raise InvalidInputError([f"{temporary}: others can rename what is in it; chmod +t, or {remedy}"])
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        if not _of_this_user_alone(directory.lstat()):
            raise InvalidInputError(
                [f"{directory}: not a directory of this user alone; remove the directory, or {remedy}"]
            )
    except OSError as error:
        raise InvalidInputError([f"{directory}: not a directory ({error.strerror}); {remedy}"]) from error
    return directory


def _of_this_user_alone(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def bind_stores() -> None:
    """Make a ``TCPStore`` whose host is the loopback address listen there; torch listens on all addresses.

    Wraps the class in ``torch.distributed.rendezvous``, which has no option for it: the handlers of ``env://`` and ``tcp://``, of
    which vLLM uses the second, cannot be replaced. Remove when the server of a store listens on its host.
    """
    rendezvous = importlib.import_module("torch.distributed.rendezvous")  # the package has a function of this name
    original = rendezvous.TCPStore
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original, updated=())
    def store(host_name: str, port: int, *args: Any, **options: Any) -> Any:
        if options.get("is_master") and host_name in (_ADDRESS, "localhost"):
            try:
                listener = socket.create_server((_ADDRESS, port))
            except OSError:  # a second group of this process shares the store of the first, which has the port
                return original(host_name, port, *args, **options)
            port, options["master_listen_fd"] = listener.getsockname()[1], listener.detach()
        return original(host_name, port, *args, **options)

    rendezvous.TCPStore = store  # type: ignore[attr-defined]
