# SPDX-License-Identifier: Apache-2.0
"""Standard streams, the current folder and the home folder, and text for a terminal.

With closed streams, full disks or missing folders, a command still ends with a message and an exit
code.
"""

import errno
import io
import os
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import click

from llmb.errors import LlmbError, UsageError

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))  # by their numbers
_USUAL = b"\n\t" + bytes(range(0x20, 0x7F))
_UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]+")
_BLANKS = "\n\t\xa0\u202f"  # harmless, but not printable to Python
# The errors of writing to a stream that is full, closed or not writable.
_BROKEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG, errno.ENXIO})


_MESSAGE = re.compile(r"(error|warning|hint|note): ")
# Parts of a message that must not be wrapped, so that they can be pasted: a command up to the end
# of its clause, text in quotes, and a number with its unit.
_PART = re.compile(
    r"(?:llmb-run|llmb-install|export"
    r" \w+=|(?:apt-get|cd|chmod|cp|mkdir|mv|pip|ps|rm|scancel|scontrol|sinfo|ssh) )"
    r".*?(?=[;,.:)]?(?:  |$)|[;,:)] |\. [A-Z])|'[^']*'\S*"
    r"|[(+-]?\d(?:[\d.,-]*\d)? [A-Za-z%µ]\S*|\S+"
)
_LEAST_WIDTH = 30


def prepare() -> None:
    """Prepare the standard streams of this process.

    Opens closed streams, replaces characters that the terminal's encoding lacks by their codes, and
    keeps escape sequences out of the traceback of a bug.
    """
    open_streams()
    for name in ("stdout", "stderr"):
        if getattr(sys, name).isatty():
            setattr(sys, name, _outliving(getattr(sys, name)))
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    sys.excepthook = _show_bug


class _Terminal(io.FileIO):
    """A terminal that may vanish: what is written afterwards goes to /dev/null.

    A command that ignores the hang-up, as under nohup, thus completes what it does.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            _to_nowhere(self)
            return len(data)


def _outliving(stream: TextIO) -> TextIO:
    """Return a stream to the terminal of ``stream`` that outlives it."""
    stream.flush()
    raw = _Terminal(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=stream.encoding, errors=stream.errors, line_buffering=True
    )


def open_streams() -> None:
    """Connect closed standard streams to /dev/null.

    Otherwise the next opened file would get their number.
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
    """The current folder. Raises UsageError if it was removed or cannot be read."""
    try:
        return Path.cwd()
    except OSError as error:
        message = f"the current folder cannot be used: {error.strerror or error}"
        raise UsageError(
            message, hint="cd to a folder that exists", code="folder-unusable"
        ) from error


def with_help(words: Sequence[str]) -> list[str]:
    """Return the words of a command line, with ``help COMMAND`` as ``COMMAND --help``."""
    return [*words[1:], "--help"] if words[:1] == ["help"] else [*words]


def require_home() -> None:
    """Raise UsageError if the user's home folder is unknown."""
    if not os.environ.get("HOME"):
        os.environ.pop("HOME", None)
    try:
        Path.home()
    except RuntimeError as error:
        message = (
            "your home folder is not known: HOME is not set, and there is no user with the number"
            f" {os.getuid()}"
        )
        raise UsageError(message, hint="export HOME=DIR", code="home-unknown") from error


def printable(text: str) -> str:
    """Replace each character that is not printable, except line ends and tabs, by its code.

    It keeps escape sequences of foreign texts away from the terminal.
    """
    if text.isascii() and not text.encode().translate(None, _USUAL):
        return text  # 20 times as fast as the expression
    return _UNUSUAL.sub(_as_code, text)


def _as_code(match: re.Match[str]) -> str:
    return "".join(
        char if char in _BLANKS or char.isprintable() else char.encode("unicode_escape").decode()
        for char in match[0]
    )


def wrap(text: str, width: int, *, prose: bool = False) -> str:
    """Wrap messages (``error: ...``, ``hint: ...``) at words to ``width`` characters.

    A command, a path, a URL and a quotation stay in one line, however long. If ``text`` is
    ``prose``, every line that is not indented is wrapped, else only messages.
    """
    if width < _LEAST_WIDTH:
        return text
    lines = []
    for line in text.split("\n"):
        label = _MESSAGE.match(line)
        is_wrapped = label is not None or (prose and not line.startswith((" ", "\t")))
        lines.append(wrap_line(line, width, label.end() if label else 0) if is_wrapped else line)
    return "\n".join(lines)


def wrap_line(line: str, width: int, indentation: int) -> str:
    """Wrap one line as ``wrap`` does. Lines after the first are indented."""
    if len(line) <= width:
        return line
    indent = " " * indentation
    lines, current, end = [], "", 0
    for part in _PART.finditer(line):
        blanks, end = line[end : part.start()], part.end()
        if len(current) > len(indent) and blanks and len(current + blanks + part[0]) > width:
            lines.append(current)
            current = indent + part[0]
        else:
            current += blanks + part[0]
    return "\n".join([*lines, current])


def _stderr_width() -> int:
    """Return the width of the terminal on standard error, 0 without one: pipes are not wrapped."""
    columns = os.environ.get("COLUMNS", "")
    try:
        if not sys.stderr.isatty():
            return 0
        return (
            int(columns)
            if columns.isdecimal()
            else os.get_terminal_size(sys.stderr.fileno()).columns
        )
    except (OSError, ValueError):  # a closed stream, or one without a number
        return 0


def has_colours(stream: TextIO) -> bool:
    """Return True if ``stream`` shows colours.

    NO_COLOR (https://no-color.org) turns them off, and FORCE_COLOR (https://force-color.org) on
    without it, with any value. Otherwise a terminal has colours, and a file or a pipe has none.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        _is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb"
    )


# Terminals that print the escape sequence of a link.
_WITHOUT_LINKS = ("dumb", "linux", "screen", "vt")


def _has_links(stream: TextIO) -> bool:
    kind = os.environ.get("TERM", "")
    return _is_terminal(stream) and bool(kind) and not kind.startswith(_WITHOUT_LINKS)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # a closed stream
        return False


def echo(
    text: object = "",
    *,
    nl: bool = True,
    err: bool = False,
    prose: bool = False,
    coloured: bool = False,
    links: Sequence[Path] = (),
) -> None:
    """Print ``text`` on standard output, or on standard error, with all escape sequences of its own
    replaced.

    On a terminal, messages on standard error are wrapped at words (``prose``: every line), and the
    paths ``links`` are links. Verdicts and states have colours on standard error, and if
    ``coloured`` on standard output. Raises LlmbError if standard output cannot be written. An error
    of standard error is ignored.
    """
    shown = printable(str(text))
    if err:
        shown = wrap(shown, _stderr_width(), prose=prose)
    shown = _decorated(shown, sys.stderr if err else sys.stdout, coloured or err, links)
    try:
        click.echo(shown, nl=nl, err=err, color=True)  # else click removes what FORCE_COLOR adds
    except OSError as error:
        if error.errno == errno.EPIPE and not err:  # the reader closed the pipe: `| head`
            if not _outlives_reader:
                raise
            _to_nowhere(sys.stdout)
        elif not err:
            raise _output_error(error) from error


def _decorated(text: str, stream: TextIO, coloured: bool, links: Sequence[Path]) -> str:
    """Return ``text`` with colours and links, as far as ``stream`` has them."""
    has_paint, linked = coloured and has_colours(stream), links and _has_links(stream)
    if not has_paint and not linked:
        return text
    from llmb.core import colours

    text = colours.paint(text) if has_paint else text
    return colours.link(text, links) if linked else text


_outlives_reader = False


def outlive_reader() -> None:
    """Let the command finish its work after the reader of its output has gone: ``| head``."""
    global _outlives_reader
    _outlives_reader = True


def flush() -> None:
    """Flush standard output. Raises LlmbError, BrokenPipeError."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        if not _outlives_reader:
            raise
        _to_nowhere(sys.stdout)
    except OSError as error:
        raise _output_error(error) from error


def is_of_output(error: OSError) -> bool:
    """Return True if ``error`` comes from printing: then a flush fails again."""
    if error.errno not in _BROKEN or error.filename is not None:
        return False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            return True
    return False


def give_up_output() -> None:
    """Discard output that cannot be written: Python would try again at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _to_nowhere(stream)


def _to_nowhere(stream: TextIO | io.FileIO) -> None:
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # a stream without a file descriptor
        return


def _output_error(error: OSError) -> LlmbError:
    message = f"standard output cannot be written: {error.strerror or error}"
    return LlmbError(message, hint="write to another file or disk", code="output-failed")


def _show_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print Python's traceback without escape sequences."""
    import traceback

    text = "".join(traceback.format_exception(kind, error, trace))
    try:
        sys.stderr.write(printable(text))
    except (OSError, ValueError):
        return


_warned: set[str] = set()
_warning = threading.Lock()


def forget_warnings() -> None:
    """Start a new command in this process: each warning may be printed again."""
    with _warning:
        _warned.clear()


def warn_once(text: str, *, key: str = "", kind: str = "warning") -> None:
    """Print a warning on standard error, once in a command however often it occurs. Safe for
    threads.

    Texts with the same ``key`` are one warning. ``kind``: the word before it.
    """
    if is_first(key or text):
        echo(f"{kind}: {text}", err=True)


def is_first(text: str) -> bool:
    """Return True if a command asks about this text for the first time. Safe for threads."""
    with _warning:
        first = text not in _warned
        _warned.add(text)
    return first
