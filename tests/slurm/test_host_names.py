# SPDX-License-Identifier: Apache-2.0
"""Tests of ranks on hosts whose names are 127.0.1.1 to themselves, as two hosts with namespaces of
their own and a network between them.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmb.builtin.slurm import sbatch_script

pytestmark = pytest.mark.fault("host-names")

Run = Callable[..., subprocess.CompletedProcess[str]]
# Replaces the addresses of the one, prints its process, and keeps its namespaces until it is killed.
_HOST = """\
hostname "$1"
mount --bind "$2" /etc/hosts
ip link set lo up
echo ready
exec sleep infinity
"""
LISTEN = """\
import socket, sys
server = socket.create_server(("", 29500))
print("ready", flush=True)
server.accept()[0].sendall(b"hello")
"""
CONNECT = """\
import os, socket
print(socket.create_connection((os.environ["MASTER_ADDR"], 29500), timeout=60).recv(9).decode())
"""


class Host:
    """A host: a process that keeps the namespaces."""

    def __init__(self, name: str, hosts: Path) -> None:
        self.name = name
        unshare = ["unshare", "--uts", "--mount", "--net"]
        self.process = subprocess.Popen(
            [*unshare, "bash", "-ec", _HOST, "_", name, str(hosts)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            pytest.skip("no namespaces of hosts can be made here")

    def argv(self, *words: str) -> list[str]:
        return ["nsenter", "--uts", "--mount", "--net", f"--target={self.process.pid}", *words]

    def run(self, *words: str, **variables: str) -> str:
        done = subprocess.run(
            self.argv(*words),
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Two hosts, node-a at 10.99.0.1 and node-b at 10.99.0.2."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        pytest.skip("only root makes namespaces of hosts (util-linux, iproute2)")
    made: list[Host] = []
    try:
        for name, other in (("node-a", "10.99.0.2 node-b"), ("node-b", "10.99.0.1 node-a")):
            path = tmp_path / name
            path.write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n{other}\n")
            made.append(Host(name, path))
        first, second = made
        pid = str(second.process.pid)
        link = ("ip", "link", "add", "eth7", "type", "veth", "peer", "name", "eth8", "netns", pid)
        if subprocess.run(first.argv(*link), capture_output=True, check=False).returncode:
            pytest.skip("no network between namespaces can be made here")
        for host, device, address, gateway in (
            (first, "eth7", "10.99.0.1/24", "10.99.0.2"),
            (second, "eth8", "10.99.0.2/24", "10.99.0.1"),
        ):
            host.run("ip", "addr", "add", address, "dev", device)
            host.run("ip", "link", "set", device, "up")
            host.run("ip", "route", "add", "default", "via", gateway)
        yield first, second
    finally:
        for host in made:
            host.end()


def interface_of(host: Host, **variables: str) -> str:
    """The interface of gloo in a rank on several nodes."""
    text = sbatch_script._GLOO + 'echo "${GLOO_SOCKET_IFNAME-}"'
    return host.run("bash", "-c", text, **variables).strip()


def test_gloo_uses_an_interface_that_others_reach(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    assert first.run("getent", "hosts", "node-a").split()[0] == "127.0.1.1"
    assert [interface_of(first), interface_of(second)] == ["eth7", "eth8"]
    assert interface_of(first, GLOO_SOCKET_IFNAME="ib0") == "ib0"


def test_a_name_that_others_reach_is_left_alone(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    (tmp_path / "node-a").write_text("10.99.0.1 node-a\n")
    assert interface_of(hosts[0]) == ""


def test_the_ranks_meet_at_the_name_of_the_first_node(hosts: tuple[Host, Host]) -> None:
    """Its own name is 127.0.1.1 there, so that the first rank has to listen on every address."""
    first, second = hosts
    with subprocess.Popen(
        first.argv("python3", "-c", LISTEN), stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        assert second.run("python3", "-c", CONNECT, MASTER_ADDR="node-a").strip() == "hello"
