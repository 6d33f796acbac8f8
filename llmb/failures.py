# SPDX-License-Identifier: Apache-2.0
"""Finds in a log why its run failed: the earliest root cause by the table in failures.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from llmb import typed, yamlfile
from llmb.logs.scan import find_all, line_at
from llmb.logs.text import plain, strip_escapes
from llmb.state import JobState

PYTHON = "Python"
_TRACEBACK = b"Traceback (most recent call last)"
_HEAD, _TAIL = 4 << 20, 16 << 20  # bytes: what is between is steps and traces; causes stand at the two ends
_TRACEBACK_REACH = 1 << 16
_UNINDENTED = rb"(?![ \t]|\xe2[\x94\x95])([^\r\n]+)"  # nor within the frame that rich draws
_SAME_ERROR = 2048  # bytes: an exception's own text goes on for some lines, and may say more


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a run failed: its class, and the line of the log that says so, fit to be shown."""

    kind: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One row of the table: any of ``text``, and any of ``beside`` where given, in one line."""

    kind: str
    text: tuple[str, ...]
    beside: tuple[str, ...] = ()
    follows: bool = False

    def fits(self, line: bytes) -> bool:
        """Whether the line is one of these."""
        return _any_in(self.text, line) and (not self.beside or _any_in(self.beside, line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The content of failures.yaml."""

    causes: tuple[Signature, ...]
    python: tuple[str, ...]
    consequences: tuple[str, ...]
    noise: tuple[str, ...]
    states: dict[str, str]
    exit_codes: dict[str, str]


@lru_cache(maxsize=1)
def table() -> Table:
    """The table of failures, in order of precedence."""
    return typed.read(Table, yamlfile.load(Path(__file__).with_name("failures.yaml")))


def kind_of_end(state: JobState) -> str | None:
    """The class that the scheduler's state or the exit code says by itself, None where they say too little."""
    return table().states.get(state.state) or table().exit_codes.get(str(state.exit_code))


def find_cause(path: Path) -> Cause | None:
    """The root cause in a log, None when it has none that is known or cannot be read."""
    try:
        with path.open("rb", buffering=0) as stream:
            return _earliest(stream)
    except OSError:
        return None  # the scheduler's word stands alone then


def _earliest(stream: BinaryIO) -> Cause | None:
    python: tuple[int, Cause] | None = None
    for offset in _candidates(stream):
        place, line = _error_line(stream, offset)
        if not line or _any_in(table().noise, line):
            continue
        signature = next((row for row in table().causes if row.fits(line)), None)
        if signature is None:
            if python is None and not _any_in(table().consequences, line):
                python = place, Cause(kind=PYTHON, line=plain(line))
        elif python is not None and signature.follows and place > python[0] + _SAME_ERROR:
            return python[1]
        else:
            return Cause(kind=signature.kind, line=plain(line))
    return python[1] if python else None


def _candidates(stream: BinaryIO) -> Iterator[int]:
    """Offsets, ascending, where something of the table stands."""
    words = [text for row in table().causes for text in row.text] + list(table().python)
    needles = [_TRACEBACK, *(word.encode() for word in words)]
    size = stream.seek(0, 2)
    stretches = [(0, size)] if size <= _HEAD + _TAIL else [(0, _HEAD), (size - _TAIL, size)]
    for start, stop in stretches:
        for offset, _ in find_all(stream, needles, start, stop):
            yield offset


def _error_line(stream: BinaryIO, offset: int) -> tuple[int, bytes]:
    """The line to judge at ``offset`` and where it stands: of a traceback the last one, empty where that is cut off."""
    line = line_at(stream, offset)
    whole = strip_escapes(line.before + line.after)
    if not line.after.startswith(_TRACEBACK):
        # A row with `beside` alone is found by a word that proves nothing.
        known = any(row.fits(whole) for row in table().causes) or _any_in(table().python, whole)
        return offset, whole if known else b""
    stream.seek(offset + len(line.after))
    rest = stream.read(_TRACEBACK_REACH).lstrip(b"\r\n")
    prefix = line.before if rest.startswith(line.before) else b""  # which rank it is, or text glued before
    match = re.search(rb"^" + re.escape(prefix) + _UNINDENTED, rest, re.MULTILINE)
    return (offset + match.start(), strip_escapes(match[1])) if match else (offset, b"")


def _any_in(words: tuple[str, ...], line: bytes) -> bool:
    return any(word.encode() in line for word in words)
