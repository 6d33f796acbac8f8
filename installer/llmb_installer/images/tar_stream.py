# SPDX-License-Identifier: Apache-2.0
"""Reads tar files as streams of which parts are passed on in large pieces and others skipped.

Sparse files are stored without their zeros, in GNU's old format or in one of three PAX formats.
"""

from collections.abc import Callable, Iterable, Iterator

from llmb_installer.images import tar_headers as headers
from llmb_installer.images.tar_headers import BLOCK, Entry, NotTarError, number

_END = bytes(BLOCK)
_MAX_EXTENSION = 1 << 24  # bytes of one PAX header or long name, which are read into memory
_OFFSET, _LENGTH, _MAP = b"GNU.sparse.offset", b"GNU.sparse.numbytes", b"GNU.sparse.map"
_CUT = "it ends in the middle of an entry"
_BAD_MAP = "the map of a sparse file in it is damaged"


class Stream:
    """The pieces of a tar file. Adjacent parts that are kept go to ``write`` together, without a copy."""

    def __init__(self, pieces: Iterable[bytes], write: Callable[[bytes | memoryview], object]) -> None:
        self._pieces = iter(pieces)
        self._write = write
        self._piece = b""
        self._at = 0
        self._kept: int | None = None  # where the part begins that is kept and not written yet

    def peek(self) -> bytes | None:
        """The next block, without consuming it; None at the end."""
        if self._at == len(self._piece) and not self._load():
            return None
        block = self._piece[self._at : self._at + BLOCK]
        if len(block) < BLOCK:
            raise NotTarError(_CUT, code="layer-truncated")
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
        self.flush()
        self._write(data)

    def flush(self) -> None:
        if self._kept is not None and self._kept < self._at:
            self._write(memoryview(self._piece)[self._kept : self._at])
        self._kept = None

    def _load_more(self) -> None:
        if not self._load():
            raise NotTarError(_CUT, code="layer-truncated")

    def _load(self) -> bool:
        kept = self._kept is not None
        self.flush()
        self._piece, self._at = next(self._pieces, b""), 0
        self._kept = 0 if kept else None
        return bool(self._piece)


def entries(stream: Stream) -> Iterator[tuple[Entry, bytes]]:
    """The entries of a tar file with their header blocks. Raises NotTarError.

    The caller keeps or skips ``entry.size`` bytes and their padding before it takes the next entry; for a plain entry
    also the header block before them.
    """
    common: dict[bytes, bytes] = {}
    while (block := stream.peek()) is not None and block != _END:
        entry = headers.parse(block)
        if common or entry.type in headers.EXTENSIONS or entry.type == headers.SPARSE:
            extended = _extended(stream, common)
            if extended is not None:
                yield extended
        else:
            if not entry.plain:
                stream.skip(BLOCK)
            yield entry, block


def _extended(stream: Stream, common: dict[bytes, bytes]) -> tuple[Entry, bytes] | None:
    """The next entry with the data of the headers before it; None where the archive ends with a global header."""
    own: list[tuple[bytes, bytes]] = []
    long: dict[bytes, bytes] = {}
    while True:
        block = stream.peek()
        if block is None or block == _END:
            if own or long:
                raise NotTarError(_CUT, code="layer-truncated")
            return None
        entry = headers.parse(block)
        stream.skip(BLOCK)
        if entry.type not in headers.EXTENSIONS:
            break
        body = _body(stream, entry)
        if entry.type == b"g":
            common.update(headers.records(body))
        elif entry.type in (b"x", b"X"):
            own += headers.records(body)
        else:
            long[entry.type] = body.partition(b"\0")[0]
    pax = {key: value for key, value in {**common, **dict(own)}.items() if value}
    entry.plain, entry.pax = False, pax
    entry.name = pax.get(b"path", long.get(b"L", entry.name))
    entry.link = pax.get(b"linkpath", long.get(b"K", entry.link))
    if b"size" in pax and entry.type not in headers.BODILESS:
        entry.size = _decimal(pax[b"size"])
    _complete_sparse(entry, block, own, stream.read)
    return entry, block


def _body(stream: Stream, entry: Entry) -> bytes:
    if not 0 <= entry.size <= _MAX_EXTENSION:
        raise NotTarError(f"a header in it claims {entry.size} bytes of names")
    return stream.read(entry.size + -entry.size % BLOCK)[: entry.size]


def _complete_sparse(entry: Entry, block: bytes, pax: list[tuple[bytes, bytes]], read: Callable[[int], bytes]) -> None:
    """Add map, size and name to ``entry`` if it is sparse; ``read`` reads what follows its header.

    Raises NotTarError.
    """
    if entry.type == headers.SPARSE:
        entry.type, entry.real_size = headers.FILE, number(block[483:495])
        entry.sparse = _old_map(block, read)
    elif entry.pax.get(b"GNU.sparse.major") == b"1":
        entry.real_size = _decimal(entry.pax.get(b"GNU.sparse.realsize", b""))
        entry.sparse = _map_from_body(entry, read)
    elif _MAP in entry.pax:
        entry.real_size = _decimal(entry.pax.get(b"GNU.sparse.size", b""))
        entry.sparse = _map_of([_decimal(word) for word in entry.pax[_MAP].split(b",")])
    elif b"GNU.sparse.size" in entry.pax:
        entry.real_size = _decimal(entry.pax[b"GNU.sparse.size"])
        entry.sparse = _map_of([_decimal(value) for key, value in pax if key in (_OFFSET, _LENGTH)])
    if entry.sparse is not None:
        entry.name = entry.pax.get(b"GNU.sparse.name", entry.name)
        _check_map(entry.sparse, entry)


def _decimal(text: bytes) -> int:
    """A number of a PAX record. Raises NotTarError."""
    if not text.isdigit() or len(text) > 18:
        raise NotTarError(f"a PAX header in it has {text[:40]!r} instead of a number")
    return int(text)


def _old_map(block: bytes, read: Callable[[int], bytes]) -> list[tuple[int, int]]:
    found = _map_fields(block[386:482])
    more = block[482]
    while more:
        block = read(BLOCK)
        found += _map_fields(block[:504])
        more = block[504]
    return found


def _map_fields(fields: bytes) -> list[tuple[int, int]]:
    pairs = [(fields[at : at + 12], fields[at + 12 : at + 24]) for at in range(0, len(fields), 24)]
    return [(number(offset), number(length)) for offset, length in pairs if offset[0] and length[0]]


def _map_from_body(entry: Entry, read: Callable[[int], bytes]) -> list[tuple[int, int]]:
    """PAX 1.0: the stored data begins with the map, as decimal lines in whole blocks."""
    text = b""
    wanted: int | None = None
    while wanted is None or text.count(b"\n") < wanted:
        if entry.size < BLOCK:
            raise NotTarError(_BAD_MAP)
        text += read(BLOCK)
        entry.size -= BLOCK
        if wanted is None and b"\n" in text:
            wanted = 1 + 2 * _decimal(text.partition(b"\n")[0])
    return _map_of([_decimal(line) for line in text.split(b"\n")[1:wanted]])


def _map_of(numbers: list[int]) -> list[tuple[int, int]]:
    if len(numbers) % 2:
        raise NotTarError(_BAD_MAP)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _check_map(parts: Iterable[tuple[int, int]], entry: Entry) -> None:
    end = stored = 0
    for offset, length in parts:
        if offset < end or length < 0:
            raise NotTarError(_BAD_MAP)
        end, stored = offset + length, stored + length
    if end > entry.real_size or stored > entry.size:
        raise NotTarError(_BAD_MAP)
