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
ENVIRONMENT = {
    # Makes Ray take the loopback address for its node's, as it does by default on macOS and Windows; on Linux it replaces a
    # 127.0.0.1 that it is given (``ray_init._node_ip_address``) by the outer address. veRL's vLLMHttpServer, TransferQueue and
    # rendezvous listen on the address of Ray's node.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "VLLM_HOST_IP": _ADDRESS,
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}


def private_ray(environment: Mapping[str, str], temporary: Path = Path("/tmp")) -> dict[str, str]:
    """Return variables that keep other users of this machine out of a Ray cluster of the run's own; none that are set already.

    Ray lets everybody write into its directory, from which workers load code, and read the file in which it keeps its token.

    Raises:
        InvalidInputError: the directory belongs to somebody else, or others have rights in it.
    """
    variables = {}
    if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & environment.keys():
        variables["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    if not {"RAY_TMPDIR", "TMPDIR"} & environment.keys():
        # Short: a socket's path has at most 107 characters, of which Ray's part takes 69.
        directory = temporary / f"trgrpo-{os.getuid()}"
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            message = f"{directory}: not a directory of this user alone; remove it, or set RAY_TMPDIR to one that is"
            raise InvalidInputError([message])
        variables["RAY_TMPDIR"] = str(directory)
    return variables


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
