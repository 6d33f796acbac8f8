# SPDX-License-Identifier: Apache-2.0
"""Test of a disk that fills while runs wait: a real one, small, in a mount namespace that nobody
else sees.
"""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.fault("full-disk")

# One run waits for a file elsewhere, another one behind it; the disk fills meanwhile, and is
# emptied at the end.
DRIVER = """
import dataclasses, os, sys, time
from pathlib import Path
root, disk = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, sys.argv[3])
from conftest import Machine, wait_until
(disk / "install").mkdir(parents=True)
(disk / "venv/bin").mkdir(parents=True)
(disk / "venv/bin/python").symlink_to(sys.executable)
environ = {"PATH": os.environ["PATH"], "HOME": str(root), "LLMB_STATE_DIR": str(disk / "state")}
machine = Machine(root=disk, environ=environ)
first = machine.submit(f"import os, time\\nwhile not os.path.exists({str(root / 'go')!r}): time.sleep(0.05)")
second = machine.submit("print('it ran')")
machine.runner(first)
full = open(disk / "full", "wb", buffering=0)
try:
    while True: full.write(b"x" * 4096)
except OSError as error:
    print("filled:", error.strerror, flush=True)
(root / "go").touch()
time.sleep(3)
states = [machine.poll(run) for run in (first, second)]
print("while full:", *(state.state for state in states), flush=True)
print("why:", states[1].reason, flush=True)
if sys.argv[4] == "killed":
    machine.supervisor().kill()
    machine.supervisor_gone()
    print("without a supervisor:", machine.poll(second).state, machine.poll(second).reason, flush=True)
full.close()
(disk / "full").unlink()
print("at the end:", machine.end(first).state, machine.end(second).state, second.log.read_text().strip(), flush=True)
machine.supervisor_gone()
"""


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("unshare") is None,
    reason="needs root and unshare of util-linux, for a disk of its own",
)
@pytest.mark.parametrize("supervisor", ["alive", "killed"])
def test_a_full_disk_stops_the_queue_and_loses_nothing(supervisor: str, tmp_path: Path) -> None:
    driver, disk = tmp_path / "driver.py", tmp_path / "disk"
    driver.write_text(DRIVER)
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=6m tmpfs "$1" && shift && exec "$@"'
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", str(disk)]
    argv += [
        sys.executable,
        str(driver),
        str(tmp_path),
        str(disk),
        str(Path(__file__).parent),
        supervisor,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
    printed = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert "filled" in printed, done.stderr
    assert printed["filled"] == os.strerror(28)
    # The first may have found the last free page for its end; either is true, and nothing else
    # would be.
    assert printed["while full"] in ("RUNNING PENDING", "COMPLETED PENDING"), done.stderr
    assert os.strerror(errno.ENOSPC) in printed["why"]
    if supervisor == "killed":
        assert printed["without a supervisor"].startswith("PENDING"), done.stderr
        assert os.strerror(errno.ENOSPC) in printed["without a supervisor"]
    assert printed["at the end"].split(" ", 2) == ["COMPLETED", "COMPLETED", "it ran"], (
        done.stdout,
        done.stderr,
    )


# A run fills the disk with its own log, and fails of it; another one waits behind it.
OWN_LOG = """
import os, sys, time
from pathlib import Path
root, disk = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, sys.argv[3])
from conftest import Machine, wait_until
(disk / "install").mkdir(parents=True)
(disk / "venv/bin").mkdir(parents=True)
(disk / "venv/bin/python").symlink_to(sys.executable)
environ = {"PATH": os.environ["PATH"], "HOME": str(root), "LLMB_STATE_DIR": str(disk / "state")}
machine = Machine(root=disk, environ=environ)
first = machine.submit("import sys\\nwhile True: print('x' * 4096, flush=True)")
second = machine.submit("print('it ran')")
wait_until(lambda: os.statvfs(disk).f_bavail == 0, "a full disk")
wait_until(lambda: machine.poll(second).reason or machine.poll(second).is_end, "a reason")
states = [machine.poll(run) for run in (first, second)]
print("while full:", *(state.state for state in states), flush=True)
with first.log.open("r+") as log:
    log.truncate(4096 * 4)
print("at the end:", machine.end(first).state, machine.end(second).state, second.log.read_text().strip(), flush=True)
machine.supervisor_gone()
"""


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("unshare") is None,
    reason="needs root and unshare of util-linux, for a disk of its own",
)
def test_a_run_that_fills_the_disk_with_its_log_costs_itself(tmp_path: Path) -> None:
    """It fails, and the run behind it waits for space and then runs."""
    driver, disk = tmp_path / "driver.py", tmp_path / "disk"
    driver.write_text(OWN_LOG)
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=6m tmpfs "$1" && shift && exec "$@"'
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", str(disk)]
    argv += [sys.executable, str(driver), str(tmp_path), str(disk), str(Path(__file__).parent)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
    printed = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert "at the end" in printed, (done.stdout, done.stderr)
    first, second = printed["while full"].split()
    assert first in ("RUNNING", "FAILED", "LOST"), done.stderr
    assert second == "PENDING"
    assert printed["at the end"].split(" ", 2) == ["FAILED", "COMPLETED", "it ran"], (
        done.stdout,
        done.stderr,
    )
