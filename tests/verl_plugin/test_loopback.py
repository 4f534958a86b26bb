"""Stores that listen on the loopback address, and a directory for Ray that is the user's alone."""

import os
import socket
from pathlib import Path

import psutil
import pytest
from torch.distributed import TCPStore
from torch.distributed.rendezvous import rendezvous

from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.verl_plugin.loopback import bind_stores, private_ray


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def listening(port: int) -> list[str]:
    return [
        each.laddr.ip
        for each in psutil.Process().net_connections("tcp")
        if each.status == "LISTEN" and each.laddr.port == port
    ]


@pytest.mark.parametrize("scheme", ["tcp", "env"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_store_listens_on_its_host_if_that_is_the_loopback_address(monkeypatch, scheme, host):
    bind_stores()
    port = free_port()
    for name, value in {"MASTER_ADDR": host, "MASTER_PORT": port, "RANK": 0, "WORLD_SIZE": 1}.items():
        monkeypatch.setenv(name, str(value))
    url = "env://" if scheme == "env" else f"tcp://{host}:{port}"
    first, rank, size = next(rendezvous(url, 0, 1))
    assert (rank, size) == (0, 1)
    assert listening(port) == (["::"] if host == "0.0.0.0" else ["127.0.0.1"])
    # A second group of the process shares the server, another process is a client.
    second, *_ = next(rendezvous(url, 0, 1))
    client = TCPStore(host, port, is_master=False)
    first.set("a", "b")
    assert second.get("a") == client.get("a") == b"b" and len(listening(port)) == 1


@pytest.mark.parametrize("name", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"])
def test_what_the_user_set_for_ray_stays_unless_it_is_empty(tmp_path, name):
    assert private_ray({name: "x", "RAY_TMPDIR": "y"}, tmp_path) == {}
    assert not [*tmp_path.iterdir()]
    assert private_ray({name: "", "RAY_TMPDIR": "y"}, tmp_path).keys() == {"RAY_AUTH_TOKEN"}
    first, second = private_ray({}, tmp_path), private_ray({"RAY_TMPDIR": "", "TMPDIR": ""}, tmp_path)
    assert first["RAY_TMPDIR"] == second["RAY_TMPDIR"] and Path(first["RAY_TMPDIR"]).stat().st_mode & 0o777 == 0o700
    assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]


@pytest.mark.parametrize("mode", [0o700, 0o701, 0o720, 0o755, 0o1777, 0o777])
def test_ray_has_a_directory_of_the_users_alone_in_tmpdir(tmp_path, mode):
    place, environment = tmp_path / "tmp", {"TMPDIR": str(tmp_path / "tmp"), "RAY_AUTH_TOKEN": "x"}
    place.mkdir()
    place.chmod(mode)
    if mode == 0o777:
        with pytest.raises(InvalidInputError, match="rename"):
            private_ray(environment)
    else:
        chosen = Path(private_ray(environment)["RAY_TMPDIR"])
        assert chosen.stat().st_mode & 0o777 == 0o700
        assert chosen == (place if mode == 0o700 else place / f"trgrpo-{os.getuid()}")


def test_a_tmpdir_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(InvalidInputError, match="RAY_TMPDIR"):
        private_ray({"TMPDIR": str(tmp_path / "none")})


@pytest.mark.parametrize("kind", ["file", "link", "shared", "another's"])
def test_a_directory_for_ray_that_others_can_change_is_refused(monkeypatch, tmp_path, kind):
    tmp_path.chmod(0o755)
    place = tmp_path / f"trgrpo-{os.getuid()}"
    if kind == "file":
        place.touch(mode=0o700)
    elif kind == "link":
        place.symlink_to(tmp_path)
    else:
        place.mkdir(mode=0o700)
    if kind == "shared":
        place.chmod(0o770)
    elif kind == "another's":
        uid = os.getuid()
        place.rename(tmp_path / f"trgrpo-{uid + 1}")
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(InvalidInputError, match=r"not a directory of this user alone.*RAY_TMPDIR"):
        private_ray({}, tmp_path)
