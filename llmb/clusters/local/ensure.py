# SPDX-License-Identifier: Apache-2.0
"""Makes sure that a supervisor serves the queue; every command that leaves work there calls it."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from llmb.clusters.local import queue
from llmb.errors import LlmbError
from llmb.system import files, locks, shell

LOCK = "supervisor"
LOG = "supervisor.log"
_LOG_LIMIT = 256 * 1024  # bytes
_START_TIMEOUT = 10.0  # seconds


def ensure_supervisor(folder: Path, environ: Mapping[str, str], *, idle: float) -> None:
    """Start a supervisor for the queue in ``folder`` unless one holds its lock; it leaves after ``idle`` seconds.

    Raises LlmbError when it does not start, DiskFullError on a full disk.

    To be called after the entry was written: a supervisor looks at the queue once more after it has given up the lock,
    so that either it sees the entry, or this sees the lock free.
    """
    if locks.holder(folder, LOCK) is not None:
        return
    files.check_space(folder)  # else its lock could not be written
    log = folder / LOG
    files.rotate(log, limit=_LOG_LIMIT)
    argv = [sys.executable, "-P", "-m", "llmb.clusters.local.supervisor", str(folder), str(idle)]
    process = shell.spawn(argv, env=queue.base_environment(environ), cwd=Path("/"), log=log, session=True)
    # Without waiting, each of many submissions in a row would start one.
    deadline = time.monotonic() + _START_TIMEOUT
    while process.poll() is None and locks.holder(folder, LOCK) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if process.returncode:
        raise LlmbError("the supervisor of this machine's jobs does not start", hint=f"{log} says why")
    shell.let_go(process)
