# SPDX-License-Identifier: Apache-2.0
"""python -m llmb.builtin.local.supervisor FOLDER IDLE: runs the jobs of a user's queue, one after
another.

It belongs to no command and no terminal. It imports everything at its start, because its Python
environment may be removed while it serves the queue.
"""

import os
import signal
import sys
import time
import traceback
from pathlib import Path

from llmb.builtin.local import journal, queue
from llmb.contract.state import CANCELLED, FAILED
from llmb.core import files, locks, shell
from llmb.errors import LlmbError

POLL = 0.1  # seconds
FULL_POLL = 2.0  # seconds between checks of a full disk


def main(arguments: list[str]) -> int:
    """Serve the queue in the folder of the first argument, until it is empty for the seconds of the
    second argument.
    """
    folder, idle = Path(arguments[0]), float(arguments[1])
    os.chdir("/")
    # a handler: programs would inherit an ignored signal
    signal.signal(signal.SIGHUP, lambda number, frame: None)
    while True:
        try:
            with locks.hold(folder, queue.LOCK):
                journal.say(f"supervisor {os.getpid()} serves {folder}")
                _serve(folder, idle)
                journal.say(f"supervisor {os.getpid()} ends")
        except locks.LockHeldError:
            return 0
        # A submission may have seen the lock held just before it was released.
        if not queue.entries(folder):
            return 0


def _serve(folder: Path, idle: float) -> None:
    queue.clean_up(folder)
    if (before := queue.running(folder)) is not None:
        journal.say(f"{before.id} was active when the previous supervisor ended")
        _guarded(folder, before.id, before.directory, None)
    last = time.monotonic()
    while True:
        waiting = queue.entries(folder)
        if waiting:
            try:
                _take(folder, waiting[0])
            # the run keeps its position, and starts when there is space
            except files.DiskFullError as error:
                journal.say(f"the queue waits: {error.message}")
                time.sleep(FULL_POLL)
            last = time.monotonic()
        elif time.monotonic() - last >= idle:
            return
        else:
            time.sleep(POLL)


def _take(folder: Path, path: Path) -> None:
    try:
        entry = queue.read(path)
    except LlmbError as error:
        journal.say(f"{error.message}; moved to {queue.set_aside(path)}")
        return
    if entry is not None:
        for written in (folder, entry.directory):
            files.check_space(written)
        _guarded(folder, entry.id, entry.directory, entry)
        queue.remove(folder, entry.id)


def _guarded(folder: Path, run_id: str, directory: Path, entry: queue.WaitingRun | None) -> None:
    """Run one job or wait for it. No failure of a job stops the queue.

    Raises DiskFullError where a full disk prevented its start.
    """
    try:
        queue.set_running(folder, queue.Running(id=run_id, directory=directory))
        runner = _start(folder, entry) if entry is not None else None
        journal.say(f"{run_id} {_wait(directory)}")
        if runner is not None:
            shell.reap(runner)
    except files.DiskFullError:
        raise
    except LlmbError as error:
        _give_up(run_id, directory, error.message)
    except Exception:  # a bug, reported in the log: the other jobs run anyway
        _give_up(
            run_id,
            directory,
            f"the supervisor failed; {folder / queue.LOG} says how\n{traceback.format_exc()}",
        )
    finally:
        queue.set_running(folder, None)


def _give_up(run_id: str, directory: Path, reason: str) -> None:
    journal.say(f"{run_id}: {reason}")
    try:
        if journal.read(directory) is None:
            journal.conclude(directory, run_id, journal.end_now(FAILED, reason.partition("\n")[0]))
    except LlmbError as error:
        journal.say(f"{run_id}: {error.message}")


def _start(folder: Path, entry: queue.WaitingRun) -> shell.Popen[bytes] | None:
    """Start the runner, wait until it has created the run's journal, then remove the entry with its
    secrets.
    """
    runner = None
    if journal.read(entry.directory) is None:
        if cancelled := journal.cancelled_by(entry.directory):
            journal.conclude(entry.directory, entry.id, journal.end_now(CANCELLED, cancelled))
        else:
            runner = _spawn(folder, entry)
    queue.remove(folder, entry.id)
    return runner


def _spawn(folder: Path, entry: queue.WaitingRun) -> shell.Popen[bytes]:
    journal.say(f"{entry.id} starts in {entry.directory}")
    runner = shell.spawn(
        entry.argv,
        env=entry.environment,
        cwd=Path("/"),
        log=folder / queue.LOG,
        session=True,
        umask=entry.umask,
    )
    while runner.poll() is None and journal.read(entry.directory) is None:
        time.sleep(0.02)
    if journal.read(entry.directory) is None:
        files.check_space(entry.directory)
        raise LlmbError(
            f"its runner did not start; {folder / queue.LOG} shows why", code="runner-failed"
        )
    return runner


def _wait(directory: Path) -> str:
    """Wait until the run in ``directory`` has ended, whichever supervisor started it. Return its
    end as text.
    """
    entry = journal.read(directory)
    if entry is None:
        return "has not started"
    while entry.end is None and not journal.is_abandoned(entry):
        time.sleep(POLL)
    end = entry.end or journal.settle(directory, entry)
    return f"{end.state} {end.reason}".rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
