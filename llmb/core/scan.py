# SPDX-License-Identifier: Apache-2.0
"""Finds literal text in a file of any size, in one pass and constant memory."""

import contextlib
import errno
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from llmb.core import files

_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])")


def strip_escapes(data: bytes) -> bytes:
    """Remove the escape sequences by which programs control a terminal."""
    return _ESCAPE.sub(b"", data) if b"\x1b" in data else data


def plain(data: bytes | str, limit: int = 300) -> str:
    """Return ``data`` as one line of at most ``limit`` printable characters.

    A run of other characters becomes a blank.
    """
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    text = strip_escapes(raw).decode("utf-8", "replace")
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


LARGEST = 64 << 30  # bytes of a log, also unpacked: a night of NCCL traces of 1,000 nodes is less
# bytes: stays in a processor's second cache, which is what makes several needles cheap
CHUNK = 1 << 18
REACH = 4096  # bytes: a step's line is a tenth of it; bounds what a line without an end can cost
_APART = 40  # bytes
AHEAD = 1 << 16  # bytes available after a place: a traceback, or a list of some thousand numbers

_GZIP = b"\x1f\x8b"
# The bytes of NCCL traces and tracebacks, the most frequent first; what is missing here is rarer
# still.
_FREQUENT = b" 0x57f:1ec2da8493b6nNtoCLrsuIFOi[]pmAlhfgkRGScedBvP,\"()-/=MTEDwy'U_zqjW|+.;"


class Line(NamedTuple):
    """The line around a place: the bytes ``before`` and from there on, ``after``.

    Each has at most REACH bytes.
    """

    before: bytes
    after: bytes
    #: The file ends there without a newline, so the last word may be incomplete.
    cut: bool


@dataclass(frozen=True, slots=True)
class Needle:
    """Literal text to look for. ``marks`` are the bytes that every line with it has, rarest first.

    Looking for one byte is twenty times faster than for a word, so a chunk without a mark is
    skipped.
    """

    text: bytes
    marks: bytes


@lru_cache(maxsize=512)
def needle(text: str | bytes, nearby: bytes = b"") -> Needle:
    """Return ``text`` with its bytes and those always ``nearby``, within REACH after it."""
    data = text.encode() if isinstance(text, str) else text
    rarest = sorted(set(data + nearby), key=lambda byte: (-(_FREQUENT.find(byte) % 256), byte))
    return Needle(data, bytes(rarest))


#: The buffer of the last file that was read to its end.
_spare: list[bytearray] = []


@dataclass(slots=True)
class Block:
    """A stretch of a file in memory: ``data[: filled]``, whose first byte has the offset ``base``.

    Places from ``low`` to ``high`` belong to this block, and the rest is context. Valid until the
    next block is read.
    """

    data: bytearray
    base: int
    low: int
    high: int
    filled: int
    at_end: bool

    def line(self, at: int) -> Line:
        """The line around the index ``at``."""
        data, first, last = self.data, at - REACH, at + REACH
        if first < 0:
            first = 0
        if last > self.filled:
            last = self.filled
        begin = data.rfind(b"\n", first, at) + 1 or first
        begin = data.rfind(b"\r", begin, at) + 1 or begin
        end = data.find(b"\n", at, last)
        ended = data.find(b"\r", at, end if end >= 0 else last)
        end = ended if ended >= 0 else end
        if end >= 0:
            return Line(bytes(data[begin:at]), bytes(data[at:end]), False)
        return Line(
            bytes(data[begin:at]), bytes(data[at:last]), self.at_end and last == self.filled
        )

    def behind(self, at: int, size: int = AHEAD) -> bytes:
        """The bytes from ``at``, at most ``size`` of them (at most AHEAD)."""
        return bytes(self.data[at : min(self.filled, at + size)])


class Hit(NamedTuple):
    """A needle's text found at ``offset`` of the file, which is the index ``at`` of ``block``."""

    offset: int
    text: bytes
    block: Block
    at: int


def open_log(path: Path) -> BinaryIO:
    """Open a log, decompressed if it is gzip, whatever its name.

    Raises OSError, also for a pipe or device, and for a file larger than LARGEST.
    """
    stream = files.open_regular(path)
    if os.fstat(stream.fileno()).st_size > LARGEST:
        stream.close()
        raise _too_large()
    if stream.read(2) == _GZIP and (packed := _unpacked(path)) is not None:
        stream.close()
        return packed
    stream.seek(0)
    return stream


def _too_large() -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {LARGEST >> 30} GiB")


def _unpacked(path: Path) -> BinaryIO | None:
    import gzip

    stream = gzip.GzipFile(path)
    try:
        stream.read(1)
        stream.seek(0)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        stream.close()
        return None  # other data that begins like gzip
    return stream  # type: ignore[return-value] # no BinaryIO for typeshed


def is_cut_off(path: Path) -> bool:
    """Return True if a log in gzip ends too early or is damaged. Raises OSError."""
    with open_log(path) as stream:
        if not is_packed(stream):
            return False
        has_end = False
        with _until_damage():
            while stream.read(CHUNK):
                pass
            has_end = True
    return not has_end


def is_packed(stream: BinaryIO) -> bool:
    """Return True if ``open_log`` decompresses this log.

    Its size is unknown then, and it can only be read from its start.
    """
    return not hasattr(stream, "readall")


def read_blocks(stream: BinaryIO, start: int = 0) -> Iterator[Block]:
    """The file from ``start``, block by block.

    The file is read and not mapped, which is as fast: a mapped log that its job truncates kills the
    reader (SIGBUS).
    """
    stream.seek(start)
    data = _buffer(REACH + CHUNK + AHEAD)
    base, low, filled, at_end = start, 0, 0, False
    while not at_end:
        filled = _fill(stream, data, filled)
        at_end = filled < len(data)
        high = filled if at_end else filled - AHEAD
        if base > LARGEST:
            raise _too_large()
        yield Block(data, base, low, high, filled, at_end)
        begin = max(0, high - REACH)
        data[: filled - begin] = data[begin:filled]
        base, low, filled = base + begin, high - begin, filled - begin
    _spare[:] = [data]


def _buffer(size: int) -> bytearray:
    """Return the spare buffer: a new one for each of thousands of small logs costs a tenth."""
    with contextlib.suppress(IndexError):
        if len(spare := _spare.pop()) == size:
            return spare
    return bytearray(size)


def _fill(stream: BinaryIO, data: bytearray, filled: int) -> int:
    file: Any = stream
    # The read of one step of gzip: a larger one loses what precedes damage.
    readinto = file.readinto1 if is_packed(stream) else file.readinto
    with memoryview(data) as view, _until_damage():
        while filled < len(data) and (count := readinto(view[filled:])):
            filled += count
    return filled


def read_chunks(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the rest of a log in pieces of at most ``size`` bytes.

    Of a damaged compressed log, it yields what precedes the damage.
    """
    file: Any = stream
    read: Callable[[int], bytes] = file.read1 if is_packed(stream) else file.read
    with _until_damage():
        while chunk := read(size):
            yield chunk


@contextlib.contextmanager
def _until_damage() -> Iterator[None]:
    """A compressed log that is cut off or damaged is used as far as it can be read."""
    try:
        yield
    except (EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise


def hits_in(block: Block, needles: Sequence[Needle]) -> list[Hit]:
    """Return the places of one block at which a text of ``needles`` begins, ascending."""
    far = min(block.filled, block.high + REACH)
    present: set[int] = set()
    absent: set[int] = set()

    def may_have(needle: Needle) -> bool:
        # A byte that is missing excludes most needles, without a search for their other bytes.
        if not absent.isdisjoint(needle.marks):
            return False
        for mark in needle.marks:
            if mark not in present:
                if block.data.find(mark, block.low, far) < 0:
                    absent.add(mark)
                    return False
                present.add(mark)
        return True

    hits = [
        Hit(block.base + at, needle.text, block, at)
        for needle in needles
        if may_have(needle)
        for at in _places(block, needle.text)
    ]
    return sorted(hits, key=lambda hit: hit.at) if len(hits) > 1 else hits


def apart(hits: Sequence[Hit]) -> list[Hit]:
    """Omit hits that repeat a text within a few bytes, as no line does on purpose.

    A line is read again for each of its hits, so a long line full of hits would cost its length
    squared.
    """
    distinct: list[Hit] = []
    before: dict[bytes, Hit] = {}
    for hit in hits:
        last = before.get(hit.text)
        before[hit.text] = hit
        if last is None or hit.at - last.at > _APART or _is_ended(hit.block.data, last.at, hit.at):
            distinct.append(hit)
    return distinct


def _is_ended(data: bytearray, start: int, end: int) -> bool:
    return data.find(b"\n", start, end) >= 0 or data.find(b"\r", start, end) >= 0


def _places(block: Block, text: bytes) -> Iterator[int]:
    end = min(block.filled, block.high + len(text) - 1)
    at = block.data.find(text, block.low, end)
    while at >= 0:
        yield at
        at = block.data.find(text, at + len(text), end)
