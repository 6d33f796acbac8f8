# SPDX-License-Identifier: Apache-2.0
"""Tests of a folder of a network file system: exclusive creation is not atomic, times are whole
seconds, and a host sees what others do only after a while.

A shim makes a local folder so for each process. Hosts are UTS namespaces where root can make them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llmb_testing.network_files import SHIM

pytestmark = pytest.mark.fault("network-files")

HOSTS, TURNS = 4, 12
LOCKED = (
    SHIM
    + """
from llmb.core import locks
folder, turns = Path(sys.argv[1]), int(sys.argv[2])
for _ in range(turns):
    with locks.hold(folder, "turn", wait=300):
        count = int((folder / "count").read_text())
        time.sleep(chance.uniform(0, 0.01))
        (folder / "count").write_text(str(count + 1))
"""
)
CREATED = (
    SHIM
    + """
from llmb.core import files
folder, turns = Path(sys.argv[1]), int(sys.argv[2])
for number in range(turns):
    if files.create_text(folder / f"{number}.json", str(os.getpid()), durable=False):
        print(number, os.getpid(), flush=True)
"""
)


def run_on_hosts(text: str, folder: Path) -> list[str]:
    """Run a program on all hosts at once, and return what each prints."""
    can_unshare = os.geteuid() == 0 and shutil.which("unshare") is not None
    processes = []
    for number in range(HOSTS):
        named = ["unshare", "--uts", "sh", "-c", f'hostname host{number} && exec "$@"', "sh"]
        argv = [sys.executable, "-c", text, str(folder), str(TURNS)]
        processes.append(
            subprocess.Popen(
                [*named, *argv] if can_unshare else argv,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    printed = []
    for process in processes:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        printed.append(out)
    return printed


def test_only_one_host_at_a_time_holds_a_lock(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    run_on_hosts(LOCKED, tmp_path)
    assert int((tmp_path / "count").read_text()) == HOSTS * TURNS


def test_only_one_host_creates_a_file(tmp_path: Path) -> None:
    created = [line.split() for out in run_on_hosts(CREATED, tmp_path) for line in out.splitlines()]
    assert sorted(int(number) for number, _ in created) == [*range(TURNS)]
    for number, pid in created:
        assert (tmp_path / f"{number}.json").read_text() == pid
