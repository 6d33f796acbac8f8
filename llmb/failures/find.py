# SPDX-License-Identifier: Apache-2.0
"""Finds in the logs of a run why it failed: the earliest root cause, whichever rank told of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from llmb.failures.cause import Cause, rank_of
from llmb.failures.table import PYTHON, any_in, needles, table
from llmb.logs.scan import Hit, Line, find_all, is_packed, needle, open_log
from llmb.logs.text import plain, strip_escapes

_TRACEBACK = needle("Traceback (most recent call last)")
_HEAD, _TAIL = 4 << 20, 16 << 20  # bytes: what is between is steps and traces; causes stand at the two ends
_UNINDENTED = rb"(?![ \t]|\xe2[\x94\x95])([^\r\n]+)"  # nor within the frame that rich draws
_SAME_ERROR = 2048  # bytes: an exception's own text goes on for some lines, and may say more
_LAST_ERROR = re.compile(rb"nccl\w+Error[^\r\n]*[\r\n]+[^\r\n]{0,40}Last error:[^\r\n]*[\r\n]+([^\r\n]+)")


class _Found(NamedTuple):
    """A cause, where it stands, and how it compares: specific ones first, then Python errors, then what follows."""

    place: int
    cause: Cause
    order: int


class _Told(NamedTuple):
    """An error as a log has it: the line to judge and where it stands, and what stands before it."""

    place: int
    line: bytes
    prefix: bytes

    def cause(self, kind: str) -> Cause:
        return Cause(kind=kind, line=plain(self.line), rank=rank_of(self.prefix + self.line))


def find_cause(path: Path) -> Cause | None:
    """The root cause in a log, None when it has none that is known or cannot be read."""
    found = _find(path)
    return found.cause if found else None


def root_cause(paths: Iterable[Path]) -> Cause | None:
    """The root cause in all logs of one run, such as one of each rank; None without one that is known.

    What one rank alone tells of comes before what it brought about in the others; of equal ones, the first in the order
    of ``paths``. Where several logs tell of a cause, it names its own.
    """
    found = [(path, cause) for path in dict.fromkeys(paths) if (cause := _find(path)) is not None]
    if not found:
        return None
    path, first = min(found, key=lambda item: item[1].order)
    return replace(first.cause, log=path.name) if len(found) > 1 else first.cause


def _find(path: Path) -> _Found | None:
    try:
        with open_log(path) as stream:
            return _earliest(stream)
    except OSError:
        return None  # the scheduler's word stands alone then


def _earliest(stream: BinaryIO) -> _Found | None:
    python: _Found | None = None
    for hit in _candidates(stream):
        told = _error_told(hit)
        if told is None or any_in(table().noise, told.line):
            continue
        row = table().row(told.line)
        if row is None:
            if python is None and not any_in(table().consequences, told.line):
                python = _Found(told.place, told.cause(PYTHON), 1)
        elif python is not None and row.follows and told.place > python.place + _SAME_ERROR:
            return python
        else:
            return _Found(told.place, told.cause(row.kind), 2 if row.follows else 0)
    return python


def _candidates(stream: BinaryIO) -> Iterator[Hit]:
    """The places, ascending, where something of the table stands."""
    wanted = [_TRACEBACK, *needles()]
    if is_packed(stream) or (size := stream.seek(0, 2)) <= _HEAD + _TAIL:
        yield from find_all(stream, wanted)
        return
    yield from find_all(stream, wanted, 0, _HEAD)
    yield from find_all(stream, wanted, size - _TAIL)


def _error_told(hit: Hit) -> _Told | None:
    """The error at ``hit``: of a traceback its last line, None where that is cut off or the place proves nothing."""
    line = hit.line()
    if hit.text == _TRACEBACK.text:
        return _last_of_traceback(hit, line)
    whole = strip_escapes(line.before + line.after)
    known = table().row(whole) or any_in(table().python, whole)
    if not known:  # a row with `beside` is found by a word that proves nothing alone
        return None
    last = _LAST_ERROR.match(hit.block.behind(hit.at, _SAME_ERROR)) if hit.text.startswith(b"nccl") else None
    if last is not None and table().row(strip_escapes(last[1])) is not None:
        return _Told(hit.offset + last.start(1), strip_escapes(last[1]), b"")
    return _Told(hit.offset, whole, b"")


def _last_of_traceback(hit: Hit, line: Line) -> _Told | None:
    start = hit.at + len(line.after)
    rest = hit.block.behind(start).lstrip(b"\r\n")
    prefix = line.before if rest.startswith(line.before) else b""  # which rank it is, or text glued before
    match = re.search(rb"^" + re.escape(prefix) + _UNINDENTED, rest, re.MULTILINE)
    return _Told(hit.offset + match.start(), strip_escapes(match[1]), strip_escapes(prefix)) if match else None
