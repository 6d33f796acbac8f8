# SPDX-License-Identifier: Apache-2.0
"""A tar file as a stream of which parts are passed on, in pieces as large as possible, and others are left out."""

from collections.abc import Callable, Iterable, Iterator

from llmb_installer.images import tarsparse
from llmb_installer.images.tarheader import BLOCK, BODILESS, EXTENSIONS, SPARSE, Entry, NotTarError, parse, records

_END = bytes(BLOCK)
_MAX_EXTENSION = 1 << 24  # bytes of one PAX header or long name, which are read into memory


class Stream:
    """The pieces of a tar file. Neighbours that are kept go to ``write`` together, without being copied."""

    def __init__(self, pieces: Iterable[bytes], write: Callable[[bytes | memoryview], object]) -> None:
        self._pieces = iter(pieces)
        self._write = write
        self._piece = b""
        self._at = 0
        self._kept: int | None = None  # where in the piece that begins which is kept and not written yet

    def peek(self) -> bytes | None:
        """The next block, which is left in place; None at the end."""
        if self._at == len(self._piece) and not self._load():
            return None
        block = self._piece[self._at : self._at + BLOCK]
        if len(block) < BLOCK:
            raise NotTarError("it is cut in the middle of an entry")
        return block

    def keep(self, count: int) -> None:
        """Pass the next ``count`` bytes on."""
        if self._kept is None:
            self._kept = self._at
        while self._at + count > len(self._piece):
            count -= len(self._piece) - self._at
            self._at = len(self._piece)
            self._load_more()
            self._kept = 0
        self._at += count

    def skip(self, count: int) -> None:
        """Leave the next ``count`` bytes out."""
        self.flush()
        while self._at + count > len(self._piece):
            count -= len(self._piece) - self._at
            self._load_more()
        self._at += count

    def read(self, count: int) -> bytes:
        """The next ``count`` bytes, which are not passed on."""
        self.flush()
        parts = []
        while self._at + count > len(self._piece):
            parts.append(self._piece[self._at :])
            count -= len(self._piece) - self._at
            self._load_more()
        parts.append(self._piece[self._at : self._at + count])
        self._at += count
        return b"".join(parts)

    def put(self, data: bytes) -> None:
        """Pass ``data`` on before what follows."""
        self.flush()
        self._write(data)

    def flush(self) -> None:
        """Write what was kept."""
        if self._kept is not None and self._kept < self._at:
            self._write(memoryview(self._piece)[self._kept : self._at])
        self._kept = None

    def _load_more(self) -> None:
        if not self._load():
            raise NotTarError("it is cut in the middle of an entry")

    def _load(self) -> bool:
        kept = self._kept is not None
        self.flush()
        self._piece, self._at = next(self._pieces, b""), 0
        self._kept = 0 if kept else None
        return bool(self._piece)


def entries(stream: Stream) -> Iterator[tuple[Entry, bytes]]:
    """The entries of a tar file with their header blocks. Raises NotTarError.

    Before the next one is asked for, ``entry.size`` bytes and their padding are to be kept or skipped, and for a plain
    entry the header block before them.
    """
    common: dict[bytes, bytes] = {}
    while (block := stream.peek()) is not None and block != _END:
        entry = parse(block)
        if common or entry.type in EXTENSIONS or entry.type == SPARSE:
            extended = _extended(stream, common)
            if extended is not None:
                yield extended
        else:
            if not entry.plain:
                stream.skip(BLOCK)
            yield entry, block


def _extended(stream: Stream, common: dict[bytes, bytes]) -> tuple[Entry, bytes] | None:
    """The next entry with what the headers before it say; None when the archive ends with a global header."""
    own: list[tuple[bytes, bytes]] = []
    long: dict[bytes, bytes] = {}
    while True:
        block = stream.peek()
        if block is None or block == _END:
            if own or long:
                raise NotTarError("it is cut in the middle of an entry")
            return None
        entry = parse(block)
        stream.skip(BLOCK)
        if entry.type not in EXTENSIONS:
            break
        body = _body(stream, entry)
        if entry.type == b"g":
            common.update(records(body))
        elif entry.type in (b"x", b"X"):
            own += records(body)
        else:
            long[entry.type] = body.partition(b"\0")[0]
    pax = {key: value for key, value in {**common, **dict(own)}.items() if value}
    entry.plain, entry.pax = False, pax
    entry.name = pax.get(b"path", long.get(b"L", entry.name))
    entry.link = pax.get(b"linkpath", long.get(b"K", entry.link))
    if b"size" in pax and entry.type not in BODILESS:
        entry.size = tarsparse.decimal(pax[b"size"])
    tarsparse.complete(entry, block, own, stream.read)
    return entry, block


def _body(stream: Stream, entry: Entry) -> bytes:
    if not 0 <= entry.size <= _MAX_EXTENSION:
        raise NotTarError(f"a header of it claims {entry.size} bytes of names")
    return stream.read(entry.size + -entry.size % BLOCK)[: entry.size]
