# SPDX-License-Identifier: Apache-2.0
"""Ends processes by a variable of their environment: all that a program started, whatever their session and group."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_SWEEP = 5.0  # seconds
_LOADING = 0.5  # seconds


def sweep(name: str, value: str) -> int:
    """Kill every process of this user in whose environment ``name`` is ``value``, but for this one; how many."""
    import psutil

    deadline = time.monotonic() + _SWEEP
    killed: set[int] = set()
    while left := _marked(name, value):
        for process in left:
            killed.add(process.pid)
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=0.1)
        if time.monotonic() > deadline:
            break
    return len(killed)


def _marked(name: str, value: str) -> list[psutil.Process]:
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # another user's, or one that has just ended
            if process.pid != os.getpid() and _environment_of(process).get(name) == value:
                found.append(process)
    return found


def _environment_of(process: psutil.Process) -> dict[str, str]:
    """The environment of a process; one that the system is still loading shows neither that nor words for a moment."""
    deadline = time.monotonic() + _LOADING
    while not (found := process.environ()):
        if process.cmdline() or not process.exe() or time.monotonic() > deadline:
            return process.environ()  # it may have been loaded between the two looks
        time.sleep(0.001)
    return found
