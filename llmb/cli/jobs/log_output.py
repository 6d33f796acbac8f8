# SPDX-License-Identifier: Apache-2.0
"""Prints the log of one run, or its last lines, or its path; follows it until the run has ended."""

import codecs
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from llmb.cli.context import Context, say
from llmb.cli.results import states_of
from llmb.errors import UsageError
from llmb.logs.scan import strip_escapes
from llmb.runs.record import RunRecord
from llmb.runs.state import LOST, JobState
from llmb.submission.follow import last_seen
from llmb.system import console


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChoice:
    """Which log is printed, and how much of it.

    That of ``attempt`` (None: the last), of the job script if ``batch``; its last ``lines`` (None: all), and those that
    follow until the run has ended if ``follows``.
    """

    attempt: int | None = None
    batch: bool = False
    follows: bool = False
    lines: int | None = None


def print_path(context: Context, name: str, choice: LogChoice) -> None:
    """Print the path of a log alone, also where it does not exist yet. Raises UsageError."""
    path = _path(_attempt_of(context.runs((name,))[0], choice.attempt), choice)
    console.echo(context.shown(path))
    if not path.exists():
        say("note: this file does not exist")


def print_log(context: Context, name: str, choice: LogChoice) -> None:
    """Print the log of one run. Raises UsageError for an attempt that it does not have."""
    found = context.runs((name,))[0]
    of, last = _attempt_of(found, choice.attempt), choice.attempt in (None, found.attempt)
    path = _path(of, choice)
    follows = choice.follows and last and not last_seen(found).is_final
    start = 0 if choice.lines is None else start_of_last_lines(path, choice.lines)
    if follows and context.archive is None:
        context.need_cluster()  # without one, nobody knows when to stop

    def ended() -> bool:
        return not follows or _state(context, found).is_end

    if tail(path, sys.stdout, ended=ended, start=start):
        return
    if not last:
        say(f"attempt {of.attempt} of {found.id} has no log")
        return
    state = _state(context, found)
    nothing = ("has an empty log" if path.exists() else "has no log") if state.is_over else "has no log yet"
    say(f"{found.id} {nothing}: {state.state}{': ' + state.reason if state.reason else ''}")


def _state(context: Context, run: RunRecord) -> JobState:
    """The state of a run; of one in an archive, which may still run elsewhere, the last that was seen is its end."""
    if context.archive is None:
        return states_of(context, [run])[run.id]
    seen = last_seen(run)
    return seen if seen.is_end else replace(seen, state=LOST, reason="it had not ended when it was archived")


def _attempt_of(run: RunRecord, attempt: int | None) -> RunRecord:
    """The run as of ``attempt``. Raises UsageError for one that it does not have."""
    if attempt is not None and attempt > run.attempt:
        hint = f"its last attempt is {run.attempt}"
        raise UsageError(f"{run.id} has no attempt {attempt}", hint=hint, code="attempt-unknown", value=attempt)
    return run if attempt is None else replace(run, attempt=attempt)


def _path(run: RunRecord, choice: LogChoice) -> Path:
    return run.batch_log if choice.batch else run.log


_EVERY = 0.3  # seconds
_BLOCK = 1 << 16  # bytes
_RAW_LINE_END = re.compile(rb"\r\n|\r|\n")
# May continue in the next bytes: an escape sequence, or a line end of two characters.
_OPEN = re.compile(rb"(?:\r|\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,200}\x1b?)?)\Z")
_LINE_END = re.compile(r"\r\n?")  # a progress bar returns to the start of its line


def start_of_last_lines(path: Path, count: int) -> int:
    """The offset in bytes at which the last ``count`` lines of a log begin; 0 where it has no more.

    A carriage return ends a line, as in what is printed. Reads the end of the file alone.
    """
    if not path.exists():
        return 0
    with path.open("rb") as stream:
        length, size = stream.seek(0, 2), _BLOCK
        while True:
            start = max(0, length - size)
            stream.seek(start)
            end = stream.read(length - start)
            # Where lines begin: after each line end but the last character's.
            begins = [match.end() for match in _RAW_LINE_END.finditer(end) if match.end() < len(end)]
            if len(begins) >= count:
                return start + begins[-count]
            if start == 0:
                return 0
            size *= 4


def tail(path: Path, out: TextIO, *, ended: Callable[[], bool], start: int = 0) -> bool:
    """Copy the log ``path`` from byte ``start`` to ``out`` until its writer has ``ended``; False where it was empty.

    Control characters do not reach the terminal.
    """
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    position, kept = start, b""
    while True:
        last = ended()  # before reading, so that everything written before the end is read
        if path.exists():
            with path.open("rb") as stream:
                stream.seek(position)
                while chunk := stream.read(_BLOCK):
                    position += len(chunk)
                    data = kept + chunk
                    open_ = _OPEN.search(data, max(0, len(data) - 256))
                    kept = data[open_.start() :] if open_ else b""
                    out.write(_printable(decode(strip_escapes(data[: len(data) - len(kept)]))))
            out.flush()
        if last:
            out.write(_printable(decode(kept, True)))
            out.flush()
            return position > 0
        time.sleep(_EVERY)


def _printable(text: str) -> str:
    """``text`` with a blank for each control character."""
    lines = _LINE_END.sub("\n", text)
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in lines)
