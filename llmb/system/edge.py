# SPDX-License-Identifier: Apache-2.0
"""Where both commands meet the world: standard streams, the current folder, the home folder, and text for a terminal.

Whatever surrounds a command, it ends with a message and an exit code, never with a traceback.
"""

import errno
import os
import re
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import TextIO

import click

from llmb.errors import LlmbError, UsageError

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))  # by their numbers
_UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]")
_BLANKS = "\n\t\xa0\u202f"  # which are not printable to Python, and do no harm
# What a write to a stream fails with that is full, gone or not one to write to.
_BROKEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG, errno.ENXIO})


class OutputError(LlmbError):
    """Standard output cannot be written, so that nobody has the answer."""


def prepare() -> None:
    """Make the process fit for work, however it was started.

    Closed streams are opened, characters that a terminal's encoding lacks are written as their codes, and the traceback
    of a bug holds no escape sequence.
    """
    open_streams()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    sys.excepthook = _show_bug


def open_streams() -> None:
    """Have standard input, output and error: of a closed one nothing is read, and nothing comes out.

    Left closed, its number would be that of the next file that is opened.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            if opened != number:
                os.close(opened)
        setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def current_folder() -> Path:
    """The current folder. Raises UsageError where it was removed or may not be looked at."""
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(
            f"the current folder cannot be used: {error.strerror or error}", hint="cd to a folder that is there"
        ) from error


def require_home() -> None:
    """Raise UsageError where nobody can say what the user's home folder is."""
    if not os.environ.get("HOME"):
        os.environ.pop("HOME", None)
    try:
        Path.home()
    except RuntimeError as error:
        message = f"your home folder is not known: HOME is not set, and there is no user with the number {os.getuid()}"
        raise UsageError(message, hint="export HOME=DIR, a folder of yours") from error


def printable(text: str) -> str:
    """``text`` with its line ends and tabs, and each other character that is not printable written as its code.

    So that no escape sequence reaches a terminal, whoever wrote the text.
    """
    if _UNUSUAL.search(text) is None:
        return text
    return "".join(
        char if char in _BLANKS or char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def echo(text: object = "", *, nl: bool = True, err: bool = False) -> None:
    """Print ``text`` on standard output, or on standard error, without escape sequences.

    Raises OutputError where standard output cannot be written; of standard error nobody can be told.
    """
    try:
        click.echo(printable(str(text)), nl=nl, err=err)
    except OSError as error:
        if error.errno == errno.EPIPE and not err:
            raise  # the reader of our output has gone: `| head`
        if not err:
            raise _output_error(error) from error


def flush() -> None:
    """Have what was printed on standard output arrive. Raises OutputError, BrokenPipeError."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _output_error(error) from error


def is_of_output(error: OSError) -> bool:
    """Whether ``error`` came of printing: what could not be written is still to be written."""
    if error.errno not in _BROKEN or error.filename is not None:
        return False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            return True
    return False


def give_up_output() -> None:
    """Throw away what cannot be written, so that the interpreter does not try again when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _to_nowhere(stream)


def _to_nowhere(stream: TextIO) -> None:
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # a stream without a number of its own
        return


def _output_error(error: OSError) -> OutputError:
    why = error.strerror or str(error)
    return OutputError(f"standard output cannot be written: {why}", hint="send it to another place")


def _show_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Python's own traceback, fit for a terminal."""
    text = "".join(traceback.format_exception(kind, error, trace))
    try:
        sys.stderr.write(printable(text))
    except (OSError, ValueError):
        return
