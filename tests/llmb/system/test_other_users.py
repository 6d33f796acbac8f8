# SPDX-License-Identifier: Apache-2.0
"""Tests of locks and files between users: processes that the system hides, umask 077, clocks that differ."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmb.runs import store
from llmb.system import files, locks, permissions
from llmb.system.process import ProcessId

pytestmark = pytest.mark.fault("users")

NEEDS_ROOT = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None,
    reason="needs root, unshare and setpriv of util-linux: other users, and a /proc of its own",
)
# A holder of one user, then looks of another one: while it lives, and after its death.
DRIVER = """
import os, subprocess, sys, time
folder = sys.argv[1]
HOLD = '''
import sys, time
from pathlib import Path
from llmb.system import locks
with locks.hold(Path(sys.argv[1]), "x"):
    print("held", flush=True)
    time.sleep(600)
'''
LOOK = '''
import os, sys
from pathlib import Path
from llmb.system import locks
owner = locks.holder(Path(sys.argv[1]), "x")
seen = os.path.exists(f"/proc/{owner.pid}/stat") and os.access(f"/proc/{owner.pid}/stat", os.R_OK) if owner else None
try:
    with locks.hold(Path(sys.argv[1]), "x"):
        print("taken")
except locks.LockHeldError as error:
    print("refused", owner is not None, seen)
'''
def user(uid, code):
    # Root's Python may lie where only root may read: the one privilege that is left.
    caps = "caps=-all,+dac_read_search"
    keep = [f"--inh-{caps}", f"--ambient-{caps}", "--bounding-set=-sys_ptrace,-kill", "--clear-groups"]
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", *keep, sys.executable, "-c", code, folder]
holder = subprocess.Popen(user(4001, HOLD), stdout=subprocess.PIPE, text=True)
print(holder.stdout.readline().strip(), flush=True)
print(subprocess.run(user(4002, LOOK), capture_output=True, text=True), flush=True)
holder.kill()
holder.wait()
print(subprocess.run(user(4002, LOOK), capture_output=True, text=True), flush=True)
"""


@NEEDS_ROOT
@pytest.mark.parametrize("hidden", [0, 1, 2])
def test_the_lock_of_a_process_that_is_hidden_is_held(hidden: int, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o777)
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    mount = 'mount -t proc -o hidepid="$1" proc /proc && shift && exec "$@"'
    argv = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-c", mount, "sh", str(hidden)]
    argv += [sys.executable, str(driver), str(shared)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.count("\n") == 3, (done.stdout, done.stderr)
    held, while_held, after = done.stdout.splitlines()
    assert held == "held", done.stderr
    assert f"stdout='refused True {hidden == 0}\\n'" in while_held  # it is hidden as it should be
    assert "stdout='taken\\n'" in after
    assert "Traceback" not in done.stdout


@pytest.fixture
def closed() -> Iterator[None]:
    """A user whose files are nobody else's."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.parametrize("mode", [0o2775, 0o775, 0o755, 0o700])
def test_files_of_an_install_follow_its_mode(mode: int, tmp_path: Path, closed: None) -> None:
    install = tmp_path / "install"
    (install / ".llmb").mkdir(parents=True)
    install.chmod(mode)
    permissions.mode_of_install.cache_clear()
    experiments = install / "workloads" / "w" / "experiments"
    directory = store.new_directory(experiments, "job", 1000).path
    files.write_text(directory / "llmb-run.json", "{}")
    files.write_text(directory / "new" / "state.json", "{}")
    with locks.hold(directory, "submission"):
        (lock,) = directory.glob("submission.lock.*")
        made = [directory / "llmb-run.json", directory / "new" / "state.json", lock]
        assert {path.stat().st_mode & 0o777 for path in made} == {mode & 0o666}
    folders = [directory, directory / "job", directory / "new", *directory.parents[:3]]
    assert {path.stat().st_mode & 0o777 for path in folders} == {mode & 0o777}
    assert permissions.umask_in(directory, 0o077) == 0o777 & ~mode
    files.write_text(directory / "secret", "x", mode=0o600)
    assert (directory / "secret").stat().st_mode & 0o777 == 0o600


def test_elsewhere_the_umask_holds(tmp_path: Path, closed: None) -> None:
    files.write_text(tmp_path / "report" / "r.md", "x")
    assert (tmp_path / "report" / "r.md").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "report").stat().st_mode & 0o777 == 0o700
    assert (permissions.own_umask(), permissions.umask_in(tmp_path, 0o077)) == (0o077, 0o077)


def test_a_lock_that_cannot_be_read_is_held_while_its_heart_beats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "x.lock.1"
    lock.write_text(json.dumps(dataclasses.asdict(ProcessId.current())))
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path == lock:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(locks.LockHeldError) as caught:
        locks.hold(tmp_path, "x").__enter__()
    assert (caught.value.code, caught.value.value) == ("lock-held", lock)
    old = time.time() - locks.STALE_AFTER - 1
    os.utime(lock, (old, old))
    with locks.hold(tmp_path, "x"):
        pass


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
@pytest.mark.parametrize(("age", "held"), [(1.0, True), (290.0, True), (310.0, False)])
def test_a_clock_that_differs_from_the_file_servers(
    ahead: float, age: float, held: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "x.lock.1"
    lock.write_text(json.dumps(dataclasses.asdict(dataclasses.replace(ProcessId.current(), host="node7"))))
    os.utime(lock, (time.time() - age, time.time() - age))
    true: Callable[[], float] = time.time
    monkeypatch.setattr(time, "time", lambda: true() + ahead)
    assert (locks.holder(tmp_path, "x") is not None) == held
    assert [path.name for path in tmp_path.iterdir()] == ["x.lock.1"]
