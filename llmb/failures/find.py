# SPDX-License-Identifier: Apache-2.0
"""Finds the root cause of a failure in the logs of a run by the table of failures.yaml."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from llmb.errors import LlmbError
from llmb.failures.causes import PYTHON, Cause, any_in, row_of, table
from llmb.logs import reader, scan
from llmb.logs.scan import AHEAD, Hit, needle, plain, strip_escapes
from llmb.runs.state import JobState

_RANK = re.compile(rb"\[rank(\d{1,6})\]|^\s*(\d{1,6}): |\[default(\d{1,3})\]:")
_TRACEBACK = needle("Traceback (most recent call last)")
_NCCL = b"nccl"  # its own errors begin so
_TRACE = b" NCCL INFO "  # in no line that shows a cause; traces make logs of many GB
_UNINDENTED = rb"(?![ \t]|\xe2[\x94\x95])([^\r\n]+)"  # not a line of the frame that rich draws
_FILLED = rb"[ \t]*([^\s][^\r\n]*)"
_LENGTHS = (8192, AHEAD)  # bytes: the first is enough for most tracebacks
_MOST_TRACEBACKS = 20_000  # read to their ends: a few for each rank of the largest jobs
_SAME_ERROR = 2048  # bytes: the text of an exception may have more lines
_LAST_ERROR = re.compile(rb"nccl\w+Error[^\r\n]*[\r\n]+[^\r\n]{0,40}Last error:[^\r\n]*[\r\n]+([^\r\n]+)")


@lru_cache(maxsize=1)
def needles() -> Sequence[scan.Needle]:
    """The texts to search for in a log, in addition to tracebacks."""
    rows = table().causes
    texts = [text for row in rows for text in (*row.text, *row.not_behind)]
    return [needle(text) for text in dict.fromkeys((*texts, *table().python))]


def rank_of(line: bytes) -> int | None:
    """The rank that a line's prefix names: ``[rank3]:`` of torch, ``3: `` of srun, ``[default3]:`` of torchrun."""
    found = [match for match in _RANK.finditer(line) if match.lastindex != 3] or list(_RANK.finditer(line))
    return int(next(group for group in found[0].groups() if group is not None)) if found else None


class _Found(NamedTuple):
    """A cause and its offset. ``order``: 0 for a specific cause, 1 for a Python error, 2 for a consequence."""

    offset: int
    cause: Cause
    order: int


class _Error(NamedTuple):
    """An error in a log: its line and offset, and the prefix of the line."""

    offset: int
    line: bytes
    prefix: bytes

    def cause(self, kind: str) -> Cause:
        return Cause(kind=kind, line=plain(self.line), rank=rank_of(self.prefix + self.line))


def root_cause(paths: Iterable[Path], end: JobState | None = None) -> Cause | None:
    """The root cause in all logs of one run, such as one for each rank; None where none is found, or can be read.

    A cause in one rank's log comes before its consequences in the others; of equal ones, the first in the order of
    ``paths``. Where several logs show a cause, it names its log. Where training started again in the same log, the
    earlier part belongs to another attempt and is ignored. None also where the job's ``end`` explains everything in the
    logs: a node that failed, and the lost connections to it.
    """
    found = [(path, cause) for path in dict.fromkeys(paths) if (cause := _find(path)) is not None]
    if end is not None and end.state in table().hard_ends:
        found = [item for item in found if item[1].order == 0]
    if not found:
        return None
    path, first = min(found, key=lambda item: item[1].order)
    return replace(first.cause, log=path.name) if len(found) > 1 else first.cause


def _find(path: Path) -> _Found | None:
    try:
        start = reader.read_log(path).begins
        with scan.open_log(path) as stream:
            search = _Search()
            for hit in _candidates(stream, start):
                if (found := search.settled_by(hit)) is not None:
                    return found
            return search.python or search.weak
    except (OSError, LlmbError):
        return None  # then only the scheduler's state is known


@dataclass(slots=True)
class _Search:
    """What was found up to some offset: the first Python error, the number of errors, and texts of the table.

    ``weak``: the first line that is a cause only if there is no other.
    """

    python: _Found | None = None
    weak: _Found | None = None
    errors: int = 0
    tracebacks: int = 0
    passed: set[bytes] = field(default_factory=set)

    def settled_by(self, hit: Hit) -> _Found | None:
        """The cause, where ``hit`` decides it; else None, and the hit is remembered."""
        if hit.text == _TRACEBACK.text:
            self.tracebacks += 1
            if self.tracebacks > _MOST_TRACEBACKS:
                return None
        error = _error_at(hit)
        if error is None:
            self.passed.add(hit.text)
            return None
        row = row_of(error.line)
        behind = row is not None and any(text.encode() in self.passed for text in row.not_behind)
        if behind or any_in(table().noise, error.line):
            return None
        if row is None:
            self._add_python(error, raised=hit.text == _TRACEBACK.text)
            return None
        if row.weak:
            self.weak = self.weak or _Found(error.offset, error.cause(row.kind), 1)
            return None
        if self.python is not None and row.follows and not self._is_part_of(self.python, error, hit):
            return self.python
        return _Found(error.offset, error.cause(row.kind), 2 if row.follows else 0)

    def _add_python(self, error: _Error, *, raised: bool) -> None:
        no_cause = table().consequences + (() if raised else table().warnings)
        if not any_in(no_cause, error.line):
            self.errors += 1
            self.python = self.python or _Found(error.offset, error.cause(PYTHON), 1)

    def _is_part_of(self, before: _Found, error: _Error, hit: Hit) -> bool:
        """Whether ``error`` is a line of the error ``before``: NCCL prints its message after the exception."""
        rank, length = error.cause(PYTHON).rank, error.offset - before.offset
        if not hit.text.startswith(_NCCL) or rank != before.cause.rank:
            return False
        return length <= _SAME_ERROR if rank is None and self.errors == 1 else rank is not None and length <= AHEAD


def _candidates(stream: BinaryIO, start: int) -> Iterator[Hit]:
    """The hits of the table's texts from the offset ``start`` on, in order."""
    wanted = [_TRACEBACK, *needles()]
    for block in scan.read_blocks(stream, start):
        if not _is_trace(block):
            yield from scan.apart(scan.hits_in(block, wanted))


def _is_trace(block: scan.Block) -> bool:
    """Whether every line is one of NCCL's trace: this check takes a tenth of the time of a search."""
    data, begin = block.data, block.data.rfind(b"\n", 0, block.low) + 1
    end = data.find(b"\n", block.high, block.filled) + 1
    return end > 0 and data.count(b"\n", begin, end) == data.count(_TRACE, begin, end)


def _error_at(hit: Hit) -> _Error | None:
    """The error at ``hit``, of a traceback the last line; None where that is cut off or the hit proves nothing."""
    line = hit.block.line(hit.at)
    if hit.text == _TRACEBACK.text:
        return _last_of_traceback(hit, line)
    whole = strip_escapes(line.before + line.after)
    known = row_of(whole) or any_in(table().python, whole)
    if not known:  # a row with `beside` is found by a word that alone proves nothing
        return None
    last = _LAST_ERROR.match(hit.block.behind(hit.at, _SAME_ERROR)) if hit.text.startswith(_NCCL) else None
    if last is not None and row_of(strip_escapes(last[1])) is not None:
        return _Error(hit.offset + last.start(1), strip_escapes(last[1]), b"")
    return _Error(hit.offset, whole, b"")


def _last_of_traceback(hit: Hit, line: scan.Line) -> _Error | None:
    start = hit.at + len(line.after)
    for size in _LENGTHS:
        rest = hit.block.behind(start, size).lstrip(b"\r\n")
        # The rank, or text that another rank printed on the same line.
        prefix = line.before if rest.startswith(line.before) else b""
        match = re.search(rb"^" + re.escape(prefix) + _UNINDENTED, rest, re.MULTILINE)
        if match is not None and match.end() + _SAME_ERROR < len(rest):
            break
    if match is None:
        return None
    text = _with_next_line(strip_escapes(match[1]), rest[match.end() : match.end() + _SAME_ERROR], prefix)
    return _Error(hit.offset + match.start(), text, strip_escapes(prefix))


def _with_next_line(error: bytes, rest: bytes, prefix: bytes) -> bytes:
    """The error with its text, where that starts on the next line: Python prints no colon after an empty one."""
    if not error.rstrip().endswith(b":"):
        return error
    match = re.search(rb"^" + re.escape(prefix) + _FILLED, rest, re.MULTILINE)
    line = strip_escapes(match[1]) if match else b""
    known = row_of(line) or any_in((*table().consequences, *table().noise), line) or _TRACEBACK.text in line
    return error if known or rank_of(line) is not None else error.rstrip() + b" " + line
