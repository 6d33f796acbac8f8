# SPDX-License-Identifier: Apache-2.0
"""The log of one run: its path, its last lines, or all of it until the run ends."""

import codecs
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import click

from llmb.cli import options
from llmb.cli.context import CliContext, pass_context, say
from llmb.cli.judging import states_of
from llmb.cli.reading import opened_run
from llmb.contract.record import RunRecord
from llmb.contract.state import LOST, JobState
from llmb.core import console, files
from llmb.core.scan import is_packed, open_log, read_chunks, strip_escapes
from llmb.errors import UsageError, os_errors
from llmb.kit.seen_state import last_seen
from llmb.measure.find_logs import as_kept, log_of


@click.command("logs")
@click.argument("run", metavar="[ARCHIVE] RUN", nargs=-1, required=True)
@click.option(
    "-f", "--follow", "follows", is_flag=True, help="Follow the log until the run has ended."
)
@click.option(
    "-n", "--lines", type=click.IntRange(min=1), metavar="N", help="Only the last N lines."
)
@click.option("--path", "only_path", is_flag=True, help="Print only the path of the log.")
@click.option("--batch", is_flag=True, help="Print the output of the job script instead.")
@click.option(
    "--attempt", type=click.IntRange(min=1), metavar="N", help="Attempt (default: the last)."
)
@options.read_option
@pass_context
def logs(
    context: CliContext,
    run: tuple[str, ...],
    follows: bool,
    lines: int | None,
    only_path: bool,
    batch: bool,
    attempt: int | None,
) -> None:
    """Print the log of one run."""
    if only_path and (follows or lines):
        raise UsageError(
            "--path prints no log, so --follow and --lines have no effect",
            hint="omit them, or --path",
            code="option-conflict",
            key="--path",
        )
    record = context.runs((opened_run(context, run),))[0]
    path = log_path(record, attempt=attempt, batch=batch)
    if only_path:
        print_path(context, path)
    else:
        print_log(context, record, path, attempt=attempt, follows=follows, lines=lines)


def log_path(run: RunRecord, *, attempt: int | None, batch: bool) -> Path:
    """The log of an ``attempt`` (default: the last), or the output of its job script if ``batch``.

    Raises UsageError for an attempt that the run does not have.
    """
    if attempt is not None and attempt > run.attempt:
        raise UsageError(
            f"{run.id} has no attempt {attempt}",
            hint=f"its last attempt is {run.attempt}",
            code="attempt-unknown",
            value=attempt,
        )
    at_attempt = replace(run, attempt=attempt or run.attempt)
    if batch:
        return as_kept(at_attempt.batch_log)
    return log_of(run) if attempt is None else as_kept(at_attempt.log)


def print_path(context: CliContext, path: Path) -> None:
    """Print the path of a log alone, also if it does not exist yet."""
    console.echo(context.shown(path))
    if not files.exists(path):
        say("note: this file does not exist")


def print_log(
    context: CliContext,
    run: RunRecord,
    path: Path,
    *,
    attempt: int | None,
    follows: bool,
    lines: int | None,
) -> None:
    """Print the last ``lines`` (default: all) of the log at ``path``.

    If ``follows``, also print what is added to the log of the current attempt until the run ends.
    """
    is_current = attempt in (None, run.attempt)
    follows = follows and is_current and not last_seen(run).is_final
    start = 0 if lines is None else start_of_last_lines(path, lines)
    if follows and context.archive is None:
        context.need_cluster()  # without one, nobody knows when to stop

    def has_ended() -> bool:
        return not follows or _state(context, run).is_end

    if tail(path, sys.stdout, ended=has_ended, start=start):
        return
    if not is_current:
        say(f"attempt {attempt} of {run.id} has no log")
        return
    state = _state(context, run)
    log = "no log yet"
    if state.is_over:
        log = "an empty log" if files.exists(path) else "no log"
    say(f"{run.id} has {log}: {state.state}{': ' + state.reason if state.reason else ''}")


def _state(context: CliContext, run: RunRecord) -> JobState:
    """The state of a run. A run of an archive, which may still run elsewhere, has ended."""
    if context.archive is None:
        return states_of(context, [run])[run.id]
    state = last_seen(run)
    if state.is_end:
        return state
    return replace(state, state=LOST, reason="it had not ended when it was archived")


_PAUSE = 0.3  # seconds between two looks at a growing log
_BLOCK = 1 << 16  # bytes
_RAW_LINE_END = re.compile(rb"\r\n|\r|\n")
# May continue in the next bytes: an escape sequence, or a line end of two characters.
_OPEN = re.compile(rb"(?:\r|\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,200}\x1b?)?)\Z")
_LINE_END = re.compile(r"\r\n?")  # a progress bar returns to the start of its line


def start_of_last_lines(path: Path, count: int) -> int:
    """The offset in bytes, unpacked, of the last ``count`` lines of a log.

    A carriage return ends a line, as in the printed text. Only the end of the file is read.
    """
    if not files.exists(path):
        return 0
    with _readable(path), open_log(path) as stream:
        length = (
            sum(map(len, read_chunks(stream, _BLOCK))) if is_packed(stream) else stream.seek(0, 2)
        )
        size = _BLOCK
        while True:
            start = max(0, length - size)
            stream.seek(start)
            end = stream.read(length - start)
            # A line begins after each line end but that of the last line.
            starts = [
                match.end() for match in _RAW_LINE_END.finditer(end) if match.end() < len(end)
            ]
            if len(starts) >= count:
                return start + starts[-count]
            if start == 0:
                return 0
            size *= 4


def tail(path: Path, out: TextIO, *, ended: Callable[[], bool], start: int = 0) -> bool:
    """Copy the log ``path`` from byte ``start`` to ``out`` until its writer has ``ended``.

    Return False if it was empty. Control characters do not reach the terminal.
    """
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    position, unfinished = start, b""
    while True:
        last = ended()  # before reading, so that everything written before the end is read
        if files.exists(path):
            for chunk in _chunks(path, position):
                position += len(chunk)
                data = unfinished + chunk
                tail_match = _OPEN.search(data, max(0, len(data) - 256))
                unfinished = data[tail_match.start() :] if tail_match else b""
                complete = data[: len(data) - len(unfinished)]
                out.write(_printable(decode(strip_escapes(complete))))
            out.flush()
        if last:
            out.write(_printable(decode(unfinished, True)))
            out.flush()
            return position > 0
        time.sleep(_PAUSE)


def _chunks(path: Path, start: int) -> Iterator[bytes]:
    with _readable(path), open_log(path) as stream:
        stream.seek(start)
        yield from read_chunks(stream, _BLOCK)


def _readable(path: Path) -> AbstractContextManager[None]:
    """Raise errors of reading a log, and of nothing else, as LlmbError."""
    hint = "check that it is a file that you may read"
    return os_errors(f"{path} cannot be read", hint=hint, code="log-unreadable", value=str(path))


def _printable(text: str) -> str:
    """``text`` with a blank for each control character."""
    lines = _LINE_END.sub("\n", text)
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in lines)
