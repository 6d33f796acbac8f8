# SPDX-License-Identifier: Apache-2.0
"""python -m llmb.builtin.local.runner RUN_DIR: runs one job from its script."""

import contextlib
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType

from llmb.builtin.local import journal
from llmb.builtin.local.ranks import Ranks, Script, read_script
from llmb.contract import record
from llmb.contract.state import CANCELLED, COMPLETED, FAILED, TIMEOUT
from llmb.core import files, permissions, process
from llmb.core.times import clock
from llmb.errors import LlmbError, describe

POLL = 0.2  # seconds
FULL_POLL = 2.0  # seconds between attempts to write to a full disk

_signals: list[str] = []  # received signals that end this runner


def main(arguments: list[str]) -> int:
    """Run the job in the folder that the argument names, unless it was started or cancelled
    before.
    """
    try:
        run = record.load(Path(arguments[0]))
        begun = journal.Journal(
            id=run.stamp.id, runner=process.ProcessId.current(), started=time.time()
        )
        if not journal.create(run.place, begun):
            journal.say(f"{run.id} was started or cancelled before")
            return 0
        signal.signal(signal.SIGTERM, _note_signal)
        end = _conclude(run, _end_of(run, begun))
    except LlmbError as error:
        journal.say(describe(error))
        return 1
    journal.say(f"{end.state} {end.reason}".rstrip())
    return 0


def _conclude(run: record.RunRecord, end: journal.RunEnd) -> journal.RunEnd:
    """Write the end, waiting while the disk is full. Raises LlmbError."""
    while True:
        try:
            return journal.conclude(run.place, run.stamp.id, end)
        except files.DiskFullError as error:
            journal.say(f"waiting for space: {error.message}")
            time.sleep(FULL_POLL)


def _end_of(run: record.RunRecord, begun: journal.Journal) -> journal.RunEnd:
    try:
        return _run(read_script(run.script), run.place, begun)
    except LlmbError as error:
        journal.say(describe(error))
        return journal.end_now(FAILED, error.message)


def _run(script: Script, directory: Path, begun: journal.Journal) -> journal.RunEnd:
    for staged in script.files:
        path = Path(script.work) / staged.name
        files.write_text(path, staged.text)
        if staged.executable:
            path.chmod(path.stat().st_mode | 0o111 & ~permissions.own_umask())
    _log_to(Path(script.batch_log))
    journal.say(f"{script.id}: {script.ranks} × {' '.join(script.argv)}")
    if cancelled := journal.cancelled_by(directory):
        return journal.end_now(CANCELLED, cancelled)
    ranks = Ranks(script)
    try:
        started = replace(begun, started=time.time(), ranks=tuple(ranks.start(os.environ)))
        with contextlib.suppress(files.DiskFullError):  # the ranks run anyway
            journal.update(directory, started)
        end = _watch(script, directory, ranks)
    finally:
        ranks.end(script.grace)
    return replace(end, exit_codes=tuple(ranks.codes))


def _watch(script: Script, directory: Path, ranks: Ranks) -> journal.RunEnd:
    """Wait until the ranks have ended, or until they must end."""
    deadline = time.monotonic() + script.time_limit
    while ranks.are_running:
        ended = ranks.next_exit(POLL)
        if ended is not None and ended.code != 0:
            cause = ranks.cause(ended)
            journal.say(f"{cause}; the others have {script.grace:g} s to end")
            ranks.wait(script.grace)
            return journal.end_now(FAILED, str(cause), exit_code=cause.shell_code)
        if cancelled := journal.cancelled_by(directory):
            return journal.end_now(CANCELLED, cancelled)
        if _signals:
            return journal.end_now(FAILED, f"its runner was terminated by {_signals[0]}")
        if time.monotonic() > deadline:
            return journal.end_now(
                TIMEOUT, f"ran longer than its limit of {clock(script.time_limit)}"
            )
    return journal.end_now(COMPLETED, exit_code=0)


def _note_signal(number: int, frame: FrameType | None) -> None:
    _signals.append(signal.Signals(number).name)


def _log_to(path: Path) -> None:
    """Redirect all output of this process to ``path``, also the traceback of a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
