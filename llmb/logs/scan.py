# SPDX-License-Identifier: Apache-2.0
"""Finds literal text in a file of any size, in one pass and constant memory, and the line around a place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

CHUNK = 1 << 20
REACH = 4096  # bytes: a step's line is a tenth of it; bounds what a line without an end can cost


@dataclass(frozen=True, slots=True)
class Line:
    """The line around a place, ``before`` and from there on (``after``), at most REACH bytes of each.

    ``cut``: the file ends there without a newline, so that the last word may be half of one.
    """

    before: bytes
    after: bytes
    cut: bool


def find_all(
    stream: BinaryIO, needles: Sequence[bytes], start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Every offset between ``start`` and ``stop`` where one of ``needles`` stands, ascending, with the needle.

    Reads instead of mapping the file, at the same speed: a mapped log that its job truncates kills the reader (SIGBUS).
    """
    overlap = max(map(len, needles)) - 1
    carry, base = b"", start
    while chunk := os.pread(stream.fileno(), CHUNK if stop is None else max(0, min(CHUNK, stop - base)), base):
        block, offset = carry + chunk, base - len(carry)
        # What lies within the carried bytes alone was found with the chunk before.
        found = [(at, needle) for needle in needles for at in _offsets(block, needle) if at + len(needle) > len(carry)]
        for at, needle in sorted(found):
            yield offset + at, needle
        base += len(chunk)
        carry = block[-overlap:] if overlap else b""


def _offsets(block: bytes, needle: bytes) -> Iterator[int]:
    at = block.find(needle)
    while at >= 0:
        yield at
        at = block.find(needle, at + len(needle))


def line_at(stream: BinaryIO, offset: int) -> Line:
    """The line around ``offset`` of a file."""
    first = max(0, offset - REACH)
    wanted = offset - first + REACH
    data = os.pread(stream.fileno(), wanted, first)
    return line_of(data, offset - first, at_end=len(data) < wanted)


def line_of(data: bytes, at: int, *, at_end: bool) -> Line:
    """The line around the index ``at`` of ``data``, after which the file ends if ``at_end``."""
    begin = max(data.rfind(b"\n", 0, at), data.rfind(b"\r", 0, at)) + 1
    ends = [end for end in (data.find(b"\n", at), data.find(b"\r", at)) if end >= 0]
    return Line(data[begin:at], data[at : min(ends, default=len(data))], at_end and not ends)
