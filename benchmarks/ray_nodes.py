"""Two Ray nodes on one machine, each a daemon of its own in a network namespace of its own, joined by a virtual cable."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ADDRESSES = ("10.77.0.1", "10.77.0.2")


@dataclass(frozen=True)
class Node:
    """One node of the cluster.

    Args:
        address: IP address of its daemon.
        prefix: command prefix that enters its network namespace; empty on the machine's own network.
        interface: network interface for gloo, or None to leave the choice to gloo.
    """

    address: str
    prefix: tuple[str, ...] = ()
    interface: str | None = None

    def popen(self, command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start ``command`` on this node in a session of its own, output appended to ``log``."""
        own = {"VLLM_HOST_IP": self.address} | ({"GLOO_SOCKET_IFNAME": self.interface} if self.interface else {})
        with log.open("ab") as file:
            return subprocess.Popen(
                [*self.prefix, *command],
                env=environment | own,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def namespaces_work() -> bool:
    """Whether this user may create network namespaces."""
    if not (shutil.which("unshare") and shutil.which("nsenter") and shutil.which("ip")):
        return False
    return subprocess.run([*_unshare(), "true"], capture_output=True).returncode == 0


def _unshare() -> list[str]:
    # Everybody but root needs a user namespace to be allowed to make a network one.
    return ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]


@contextlib.contextmanager
def network(kind: str) -> Iterator[list[Node]]:
    """Two nodes, in namespaces or on the machine's own address; namespaces vanish with their last process."""
    if kind == "host":
        address = _own_address()
        yield [Node(address), Node(address)]
        return
    holders: list[subprocess.Popen[bytes]] = []
    try:
        holders.append(subprocess.Popen([*_unshare(), "sleep", "infinity"]))
        user = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
        first = ("nsenter", "--target", str(holders[0].pid), *user, "--net")
        wait_for(lambda: _own_namespace(holders[0].pid), 10, "the first network namespace")
        # The second one inside the first one's user namespace, so that one command may touch both.
        holders.append(subprocess.Popen([*first, "unshare", "--net", "sleep", "infinity"]))
        second = ("nsenter", "--target", str(holders[1].pid), *user, "--net")
        wait_for(lambda: _own_namespace(holders[1].pid, holders[0].pid), 10, "the second network namespace")
        _ip(first, f"link add cable0 type veth peer name cable1 netns {holders[1].pid}")
        nodes = []
        for number, prefix in enumerate((first, second)):
            _ip(prefix, f"address add {ADDRESSES[number]}/24 dev cable{number}")
            _ip(prefix, "link set lo up")
            _ip(prefix, f"link set cable{number} up")
            # Libraries find their own address by asking for a route to somewhere else.
            _ip(prefix, f"route add default via {ADDRESSES[1 - number]}")
            nodes.append(Node(ADDRESSES[number], prefix, f"cable{number}"))
        yield nodes
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def _own_address() -> str:
    """The address that this machine would use to reach another one; the loopback address without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation; connecting sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _own_namespace(pid: int, other: int | None = None) -> bool:
    link = Path(f"/proc/{pid}/ns/net").readlink()
    others = [Path("/proc/self/ns/net"), *([Path(f"/proc/{other}/ns/net")] if other else [])]
    return all(link != path.readlink() for path in others)


def _ip(prefix: tuple[str, ...], arguments: str) -> None:
    subprocess.run([*prefix, "ip", *arguments.split()], check=True)


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {seconds:.0f} s for {what} in vain")
        time.sleep(0.1)


@contextlib.contextmanager
def cluster(nodes: list[Node], environment: dict[str, str], directory: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A Ray daemon on every node, the first one the head; all of their processes are gone afterwards."""
    port = 6379 if nodes[0].prefix else _free_port()
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    ray += ["--num-cpus=32", "--num-gpus=1"]  # logical: room for all actors, and one rank
    daemons: list[subprocess.Popen[bytes]] = []
    # Not below `directory`: Ray's sockets need a path shorter than 108 bytes.
    temporary = Path(tempfile.mkdtemp(prefix="two_nodes_"))
    try:
        for number, node in enumerate(nodes):
            role = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={temporary}"]
            command = [*ray, f"--node-ip-address={node.address}"]
            command += role if number == 0 else [f"--address={nodes[0].address}:{port}"]
            log = directory / f"node-{number}.log"
            daemons.append(node.popen(command, environment, log))
            wait_for(functools.partial(_says_started, log), 60, f"Ray on {node.address}; see {log}")
        environment["RAY_ADDRESS"] = f"{nodes[0].address}:{port}"
        yield daemons
    finally:
        for daemon in daemons:
            end(daemon)
        shutil.rmtree(temporary, ignore_errors=True)


def _says_started(log: Path) -> bool:
    return "Ray runtime started" in log.read_text()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a process and everything it started."""
    children = descendants(process)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    process.kill()
    process.wait()
    psutil.wait_procs(children, timeout=10)
