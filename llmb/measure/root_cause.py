# SPDX-License-Identifier: Apache-2.0
"""Find the root cause of a failure in the logs of a run by the table of failures.yaml."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from llmb.contract.failures import Failure, any_in
from llmb.contract.state import JobState
from llmb.core import scan
from llmb.core.scan import AHEAD, Hit, needle, plain, strip_escapes
from llmb.errors import LlmbError
from llmb.measure import log_reader
from llmb.measure.failure_causes import PYTHON, Cause, row_of, rows, table

_RANK = re.compile(rb"\[rank(\d{1,6})\]|^\s*(\d{1,6}): |\[default(\d{1,3})\]:")
_TRACEBACK = needle("Traceback (most recent call last)")
_NCCL = b"nccl"  # its own errors begin so
_TRACE = b" NCCL INFO "  # in no line that shows a cause; traces make logs of many GB
_UNINDENTED = rb"(?![ \t]|\xe2[\x94\x95])([^\r\n]+)"  # not a line of the frame that rich draws
_FILLED = rb"[ \t]*([^\s][^\r\n]*)"
_LENGTHS = (8192, AHEAD)  # bytes: the first is enough for most tracebacks
_MOST_TRACEBACKS = 20_000  # read to their ends: a few for each rank of the largest jobs
_SAME_ERROR = 2048  # bytes: the text of an exception may have more lines
_PYTHON_WARNINGS = ("UserWarning:", "FutureWarning:", "DeprecationWarning:")  # not raised
_LAST_ERROR = re.compile(
    rb"nccl\w+Error[^\r\n]*[\r\n]+[^\r\n]{0,40}Last error:[^\r\n]*[\r\n]+([^\r\n]+)"
)


@lru_cache(maxsize=8)
def needles(more: tuple[Failure, ...] = ()) -> Sequence[scan.Needle]:
    """Return the texts to search for in a log, in addition to tracebacks."""
    texts = [text for row in rows(more) for text in (*row.text, *row.not_behind)]
    return [needle(text) for text in dict.fromkeys((*texts, *table().python))]


def rank_of(line: bytes) -> int | None:
    """Return the rank in a line's prefix: ``[rank3]:`` of torch, ``3: `` of srun, and others."""
    matches = [match for match in _RANK.finditer(line) if match.lastindex != 3] or list(
        _RANK.finditer(line)
    )
    return (
        int(next(group for group in matches[0].groups() if group is not None)) if matches else None
    )


class _Finding(NamedTuple):
    """A cause and its offset."""

    offset: int
    cause: Cause
    order: int  #: 0 for a specific cause, 1 for a Python error, 2 for a consequence


class _Error(NamedTuple):
    """An error in a log: its line and offset, and the prefix of the line."""

    offset: int
    line: bytes
    prefix: bytes

    def cause(self, kind: str, fix: str = "") -> Cause:
        rank = rank_of(self.prefix + self.line)
        return Cause(kind=kind, line=plain(self.line), rank=rank, advice=fix)


def root_cause(
    paths: Iterable[Path], end: JobState | None = None, more: tuple[Failure, ...] = ()
) -> Cause | None:
    """Return the root cause in all logs of one run, such as one for each rank, or None.

    A cause in one rank's log comes before its consequences in the others, and the first of
    ``paths`` before equal ones. If several logs show a cause, it names its log. If training started
    again in the same log, the earlier part belongs to another attempt and is ignored. ``more`` are
    causes of plugins, which come after those of the table. None also if the job's ``end`` explains
    everything in the logs: a node that failed, and the lost connections to it.
    """
    findings = [
        (path, cause)
        for path in dict.fromkeys(paths)
        if (cause := _find_cause(path, more)) is not None
    ]
    if end is not None and end.state in table().hard_ends:
        findings = [item for item in findings if item[1].order == 0]
    if not findings:
        return None
    path, first = min(findings, key=lambda item: item[1].order)
    return replace(first.cause, log=path.name) if len(findings) > 1 else first.cause


def cause_behind(path: Path, offset: int, more: tuple[Failure, ...] = ()) -> Cause | None:
    """Return the cause that a log shows behind ``offset``, which is that of a step, or None."""
    finding = _find_cause(path, more, offset)
    return None if finding is None else finding.cause


def _find_cause(path: Path, more: tuple[Failure, ...], start: int | None = None) -> _Finding | None:
    """Return the cause behind ``start`` (None: the start of the last attempt), or None."""
    try:
        start = log_reader.read_log(path).begins if start is None else start
        with scan.open_log(path) as stream:
            search = _Search(more=more)
            for hit in _candidates(stream, start, more):
                if (finding := search.cause_at(hit)) is not None:
                    return finding
            return search.python or search.weak
    except (OSError, LlmbError):
        return None  # then only the scheduler's state is known


@dataclass(slots=True)
class _Search:
    """The errors up to some offset of a log."""

    more: tuple[Failure, ...]  #: causes of plugins
    python: _Finding | None = None  #: the first Python error
    weak: _Finding | None = None  #: the first line that is a cause only if there is no other
    errors: int = 0
    tracebacks: int = 0
    passed: set[bytes] = field(default_factory=set)  #: texts of the table

    def cause_at(self, hit: Hit) -> _Finding | None:
        """Return the cause if ``hit`` decides it. Otherwise None, and the hit is remembered."""
        if hit.text == _TRACEBACK.text:
            self.tracebacks += 1
            if self.tracebacks > _MOST_TRACEBACKS:
                return None
        error = _error_at(hit, self.more)
        if error is None:
            self.passed.add(hit.text)
            return None
        row = row_of(error.line, self.more)
        behind = row is not None and any(text.encode() in self.passed for text in row.not_behind)
        is_warning = hit.text != _TRACEBACK.text and any_in(_PYTHON_WARNINGS, error.line)
        if behind or (is_warning and row is not None) or any_in(table().noise, error.line):
            return None
        if row is None:
            self._add_python(error, raised=hit.text == _TRACEBACK.text)
            return None
        if row.weak:
            self.weak = self.weak or _Finding(error.offset, error.cause(row.kind, row.fix), 1)
            return None
        if (
            self.python is not None
            and row.follows
            and not self._is_part_of(self.python, error, hit)
        ):
            return self.python
        return _Finding(error.offset, error.cause(row.kind, row.fix), 2 if row.follows else 0)

    def _add_python(self, error: _Error, *, raised: bool) -> None:
        no_cause = table().consequences + (() if raised else table().warnings)
        if not any_in(no_cause, error.line):
            self.errors += 1
            self.python = self.python or _Finding(error.offset, error.cause(PYTHON), 1)

    def _is_part_of(self, before: _Finding, error: _Error, hit: Hit) -> bool:
        """Return True if ``error`` is a line of the error ``before``.

        NCCL prints its message after the exception.
        """
        rank, length = error.cause(PYTHON).rank, error.offset - before.offset
        if not hit.text.startswith(_NCCL) or rank != before.cause.rank:
            return False
        return (
            length <= _SAME_ERROR
            if rank is None and self.errors == 1
            else rank is not None and length <= AHEAD
        )


def _candidates(stream: BinaryIO, start: int, more: tuple[Failure, ...]) -> Iterator[Hit]:
    """Yield the hits of the table's texts from the offset ``start`` on, in order."""
    texts = [_TRACEBACK, *needles(more)]
    for block in scan.read_blocks(stream, start):
        if not _is_trace(block):
            yield from scan.apart(scan.hits_in(block, texts))


def _is_trace(block: scan.Block) -> bool:
    """Return True if every line is one of NCCL's trace, in a tenth of the time of a search."""
    data, begin = block.data, block.data.rfind(b"\n", 0, block.low) + 1
    end = data.find(b"\n", block.high, block.filled) + 1
    return end > 0 and data.count(b"\n", begin, end) == data.count(_TRACE, begin, end)


def _error_at(hit: Hit, more: tuple[Failure, ...] = ()) -> _Error | None:
    """Return the error at ``hit`` (of a traceback: its last line), or None.

    None if the traceback is cut off or the hit proves nothing.
    """
    line = hit.block.line(hit.at)
    if hit.text == _TRACEBACK.text:
        return _last_of_traceback(hit, line, more)
    whole = strip_escapes(line.before + line.after)
    is_known = row_of(whole, more) or any_in(table().python, whole)
    if not is_known:  # a row with `beside` is found by a word that alone proves nothing
        return None
    last = (
        _LAST_ERROR.match(hit.block.behind(hit.at, _SAME_ERROR))
        if hit.text.startswith(_NCCL)
        else None
    )
    if last is not None and row_of(strip_escapes(last[1])) is not None:
        return _Error(hit.offset + last.start(1), strip_escapes(last[1]), b"")
    return _Error(hit.offset, whole, b"")


def _last_of_traceback(hit: Hit, line: scan.Line, more: tuple[Failure, ...]) -> _Error | None:
    start = hit.at + len(line.after)
    for size in _LENGTHS:
        following = hit.block.behind(start, size).lstrip(b"\r\n")
        # The rank, or text that another rank printed on the same line.
        prefix = line.before if following.startswith(line.before) else b""
        match = re.search(rb"^" + re.escape(prefix) + _UNINDENTED, following, re.MULTILINE)
        if match is not None and match.end() + _SAME_ERROR < len(following):
            break
    if match is None:
        return None
    text = _with_next_line(
        strip_escapes(match[1]), following[match.end() : match.end() + _SAME_ERROR], prefix, more
    )
    return _Error(hit.offset + match.start(), text, strip_escapes(prefix))


def _with_next_line(
    error: bytes, following: bytes, prefix: bytes, more: tuple[Failure, ...]
) -> bytes:
    """Return the error with its text, which starts on the next line if its first line is empty.

    Python prints no colon after an exception without a text.
    """
    if not error.rstrip().endswith(b":"):
        return error
    match = re.search(rb"^" + re.escape(prefix) + _FILLED, following, re.MULTILINE)
    line = strip_escapes(match[1]) if match else b""
    is_known = (
        row_of(line, more)
        or any_in((*table().consequences, *table().noise), line)
        or _TRACEBACK.text in line
    )
    return error if is_known or rank_of(line) is not None else error.rstrip() + b" " + line


_ENDS = frozenset(["TIMEOUT", "CANCELLED", "PREEMPTED", "NODE_FAIL", "DEADLINE"])
_TAIL = 1 << 16  # bytes: the ranks print some lines more after the scheduler's


def end_in(path: Path) -> str | None:
    """Return the state in which the scheduler ended a job, by its own line at the end of a log.

    None without such a line, and for a log that is compressed or cannot be read.
    """
    kinds = {kind: state for state, kind in table().states.items() if state in _ENDS}
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - _TAIL))
            lines = stream.read(_TAIL).splitlines()
    except OSError:
        return None
    ends = (row_of(line) for line in reversed(lines) if b"***" in line)
    return next((kinds[row.kind] for row in ends if row is not None and row.kind in kinds), None)
