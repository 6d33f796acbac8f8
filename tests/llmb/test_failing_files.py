# SPDX-License-Identifier: Apache-2.0
"""A stale handle, a read error, a full quota or a read-only file system in the folder of one run:
it costs this run, and no command ends with a traceback or without the others.
"""

import errno
import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.contract import record
from llmb.kit.checks import faults_of_folders

Run = Callable[..., "subprocess.CompletedProcess[str]"]
pytestmark = pytest.mark.fault("failing-files")
READS = ("stat", "lstat", "open", "listdir", "scandir")
COMMANDS = (
    ("results",),
    ("jobs",),
    ("report",),
    ("compare",),
    ("explain", "sound001"),
    ("jobs", "show", "sound001"),
    ("jobs", "show", "broken01"),
    ("jobs", "reconcile"),
    ("explain", "broken01"),
    ("results", "broken01"),
)


@pytest.fixture
def break_folder(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Makes each look at a folder, or at what is below it, fail with an error of storage."""

    def breaks(folder: Path, code: int) -> None:
        def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
            def guard(path: Any = ".", *rest: Any, **more: Any) -> Any:
                name = "" if isinstance(path, int) else os.fsdecode(path)
                if name == str(folder) or name.startswith(f"{folder}/"):
                    raise OSError(code, os.strerror(code), name)
                return call(path, *rest, **more)

            return guard

        for name in READS:
            monkeypatch.setattr(os, name, guarded(getattr(os, name)))
        monkeypatch.setattr(io, "open", guarded(io.open))

    return breaks


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_other_runs_are_there(
    words: tuple[str, ...],
    code: int,
    install: Any,
    run: Run,
    break_folder: Callable[[Path, int], None],
) -> None:
    install.measured("sound001", 2.75)
    broken: record.RunRecord = install.measured("broken01", 2.75, scale=32)
    break_folder(broken.directory, code)
    done = run(*words)  # raises what would be a traceback
    printed = done.stdout + done.stderr
    assert done.returncode in (0, 1, 2, 3)
    if "broken01" in words:
        assert os.strerror(code) in printed or "broken01" in printed
    else:
        assert "sound001" in printed or "nemotron4_15b" in printed or words[0] == "jobs"


@pytest.mark.parametrize("place", ["experiment", "workload", "place", "log", "state"])
def test_of_an_end_within_its_folder(
    place: str, install: Any, run: Run, break_folder: Callable[[Path, int], None]
) -> None:
    """One file or folder fails, and those beside it can be read."""
    install.measured("sound001", 2.75)
    broken: record.RunRecord = install.measured("broken01", 2.75, scale=32)
    folders = {
        "experiment": broken.directory.parent,
        "workload": broken.directory.parent.parent.parent,
        "place": broken.work,
        "log": broken.log,
        "state": broken.place / "state.json",
    }
    break_folder(folders[place], errno.ESTALE)
    for words in COMMANDS:
        done = run(*words)
        assert done.returncode in (0, 1, 2, 3), words


@pytest.mark.parametrize("code", [errno.EDQUOT, errno.EROFS, errno.ESTALE, errno.EIO])
def test_what_cannot_be_written(
    code: int, install: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.measured("sound001", 2.75)
    install.measured("broken01", 2.75, scale=32)
    opened = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and str(install.folder) in str(path):
            raise OSError(code, os.strerror(code), path)
        return opened(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    for words in COMMANDS:
        assert run(*words).returncode in (0, 1, 2, 3), words


def test_the_folders_of_runs_are_a_fault(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr("shutil.disk_usage", fail)
    assert [fault.code for fault in faults_of_folders(install.config, "0")] == ["folder-unreadable"]


def test_a_pipe_as_the_log_of_a_run(install: Any, run: Run) -> None:
    install.measured("sound001", 2.75)
    broken: record.RunRecord = install.measured("broken01", 2.75, scale=32)
    for path in (broken.log, broken.batch_log, broken.place / "scheduler_id"):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    for words in (*COMMANDS, ("jobs", "logs", "broken01"), ("archive", "-o", install.folder / "a")):
        assert run(*words).returncode in (0, 1, 2, 3), words
