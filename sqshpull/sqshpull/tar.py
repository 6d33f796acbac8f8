# SPDX-License-Identifier: Apache-2.0
"""Tar: reads and writes headers (ustar, GNU, PAX), and streams archives of which parts are kept.

Parts that are kept are passed on in large pieces. Python's tarfile takes four times as long. Sparse
files are stored without their zeros, in GNU's old format or in one of three PAX formats.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sqshpull.errors import PullError

BLOCK = 512
FILE, HARD, SYMLINK, CHAR, BLOCKDEV, FOLDER, FIFO = b"0", b"1", b"2", b"3", b"4", b"5", b"6"
DEVICES = (CHAR, BLOCKDEV)
EXTENSIONS = (b"x", b"g", b"X", b"L", b"K")  # headers with data of the next entry
SPARSE = b"S"
_GNU = b"ustar  \0"
BODILESS = (HARD, SYMLINK, CHAR, BLOCKDEV, FOLDER, FIFO)
_MAX_TIME = 2**32 - 1  # the largest time and owner of squashfs
# the namespaces of squashfs
_XATTRS = (b"SCHILY.xattr.user.", b"SCHILY.xattr.trusted.", b"SCHILY.xattr.security.")

_END = bytes(BLOCK)
_MAX_EXTENSION = 1 << 24  # bytes of one PAX header or long name, which are read into memory
_OFFSET, _LENGTH, _MAP = b"GNU.sparse.offset", b"GNU.sparse.numbytes", b"GNU.sparse.map"
_CUT = "it ends in the middle of an entry"
_BAD_MAP = "the map of a sparse file in it is damaged"


class NotTarError(PullError):
    """The data is not a tar file, or a damaged or incomplete one."""

    def __init__(self, message: str, *, code: str = "layer-damaged") -> None:
        super().__init__(message, code=code)


@dataclass(slots=True)
class TarEntry:
    """One entry of a tar file. ``name`` has no slash at either end.

    ``size`` is the bytes that follow its header. ``plain``: one header block describes it
    completely and can be copied. ``real_size`` and ``sparse`` (offset and length of each stored
    part) are set for a sparse file.
    """

    name: bytes
    type: bytes
    size: int
    plain: bool
    link: bytes = b""
    pax: dict[bytes, bytes] = field(default_factory=dict)
    real_size: int = 0
    sparse: list[tuple[int, int]] | None = None


def parse(block: bytes) -> TarEntry:
    """Return the entry whose header is ``block``. Raises NotTarError."""
    try:
        stored = int(block[148:156].strip(b"\0 ") or b"0", 8)
    except ValueError:
        stored = -1
    if stored != sum(block) - sum(block[148:156]) + 256:
        raise NotTarError("it is not a tar archive, or a damaged one")
    raw = block[:100].partition(b"\0")[0]
    ustar = block[257:263] == b"ustar\0"
    if ustar and block[345]:
        raw = block[345:500].partition(b"\0")[0] + b"/" + raw
    kind = block[156:157]
    plain = kind in b"0256" and (ustar or block[257:265] == _GNU)
    if kind in b"\0007":
        kind = FOLDER if kind == b"\0" and raw.endswith(b"/") else FILE
    size = number(block[124:136])
    if kind in BODILESS:
        plain, size = plain and size == 0, 0
    link = b"" if kind not in (HARD, SYMLINK) else block[157:257].partition(b"\0")[0]
    # no number in base 256
    plain = plain and not (block[108] | block[116] | block[124] | block[136]) & 0x80
    plain = plain and number(block[136:148]) <= _MAX_TIME
    return TarEntry(raw, kind, size, plain, link)


def number(field_: bytes) -> int:
    """Return a number in a header: octal digits, or base 256 as GNU writes large ones.

    Raises NotTarError.
    """
    if field_[0] & 0x80:
        value = int.from_bytes(field_, "big")
        return (
            value - (1 << 8 * len(field_))
            if field_[0] == 0xFF
            else value - (0x80 << 8 * (len(field_) - 1))
        )
    try:
        return int(field_.partition(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        raise NotTarError(f"a header in it has {field_!r} instead of a number") from None


def records(body: bytes) -> list[tuple[bytes, bytes]]:
    """Return the records of a PAX header in order: ``<length> <key>=<value>`` and a newline each.

    Raises NotTarError.
    """
    pairs = []
    while body.strip(b"\0"):
        length, space, _ = body.partition(b" ")
        if not space or not length.isdigit() or not len(length) + 3 <= int(length) <= len(body):
            raise NotTarError("a PAX header in it is damaged")
        key, equals, value = body[len(length) + 1 : int(length) - 1].partition(b"=")
        if not equals:
            raise NotTarError("a PAX header in it is damaged")
        pairs.append((key, value))
        body = body[int(length) :]
    return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """The attributes that squashfs stores for an entry. ``mtime`` is in seconds since 1970."""

    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    device: tuple[int, int] = (0, 0)
    xattrs: tuple[tuple[bytes, bytes], ...] = ()


def attributes(block: bytes, pax: dict[bytes, bytes]) -> Attributes:
    """Return the attributes in a header and its PAX records.

    Numbers too large for squashfs become its largest.
    """
    return Attributes(
        mode=number(block[100:108]) & 0o7777,
        uid=_bounded(pax.get(b"uid"), block[108:116]),
        gid=_bounded(pax.get(b"gid"), block[116:124]),
        mtime=_bounded(pax.get(b"mtime"), block[136:148]),
        device=(number(block[329:337]), number(block[337:345])),
        xattrs=tuple((key, value) for key, value in pax.items() if key.startswith(_XATTRS)),
    )


def _bounded(text: bytes | None, field_: bytes) -> int:
    try:
        value = number(field_) if text is None else int(text.partition(b".")[0])
    except ValueError:
        raise NotTarError(f"a PAX header in it has {text!r} instead of a number") from None
    return max(0, min(value, _MAX_TIME))


def header(name: bytes, kind: bytes, size: int, attributes: Attributes, link: bytes = b"") -> bytes:
    """Return the header blocks of an entry: one, and a PAX header before it if one is too small."""
    pax = list(attributes.xattrs)
    prefix, short = b"", name
    if len(name) > 100:
        cut = name.find(b"/", len(name) - 101)
        if 0 < cut <= 155:
            prefix, short = name[:cut], name[cut + 1 :]
        else:
            pax.append((b"path", name))
            short = name[:100]
    if len(link) > 100:
        pax.append((b"linkpath", link))
    fields = {b"uid": (attributes.uid, 7), b"gid": (attributes.gid, 7), b"size": (size, 11)}
    pax += [(key, b"%d" % value) for key, (value, digits) in fields.items() if value >= 8**digits]
    block = _ustar(short, prefix, kind, size, attributes, link[:100])
    if not pax:
        return block
    body = b"".join(map(_record, pax))
    return _ustar(b"pax", b"", b"x", len(body), Attributes(mode=0o644), b"") + padded(body) + block


def padded(body: bytes) -> bytes:
    return body + bytes(-len(body) % BLOCK)


def _ustar(
    name: bytes, prefix: bytes, kind: bytes, size: int, attributes: Attributes, link: bytes
) -> bytes:
    def octal(value: int, digits: int) -> bytes:
        return b"%0*o\0" % (digits, value % 8**digits)

    parts: Iterable[bytes] = (
        name.ljust(100, b"\0"),
        octal(attributes.mode, 7),
        octal(attributes.uid, 7),
        octal(attributes.gid, 7),
        octal(size, 11),
        octal(attributes.mtime, 11),
        b" " * 8,
        kind,
        link.ljust(100, b"\0"),
        b"ustar\x0000",
        bytes(64),
        octal(attributes.device[0], 7),
        octal(attributes.device[1], 7),
        prefix.ljust(155, b"\0"),
        bytes(12),
    )
    block = b"".join(parts)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _record(item: tuple[bytes, bytes]) -> bytes:
    record = b" %s=%s\n" % item
    length = len(record) + 1
    while len(record) + len(str(length)) != length:
        length = len(record) + len(str(length))
    return b"%d" % length + record


class TarStream:
    """The pieces of a tar file. Adjacent parts that are kept go to ``write`` without a copy."""

    def __init__(
        self, pieces: Iterable[bytes], write: Callable[[bytes | memoryview], object]
    ) -> None:
        self._pieces = iter(pieces)
        self._write = write
        self._piece = b""
        self._at = 0
        self._kept: int | None = None  # where the part begins that is kept and not written yet

    def peek(self) -> bytes | None:
        """Return the next block without consuming it, None at the end."""
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
        """Return the next ``count`` bytes, which are not passed on."""
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
        is_keeping = self._kept is not None
        self.flush()
        self._piece, self._at = next(self._pieces, b""), 0
        self._kept = 0 if is_keeping else None
        return bool(self._piece)


def entries(stream: TarStream) -> Iterator[tuple[TarEntry, bytes]]:
    """Yield the entries of a tar file with their header blocks. Raises NotTarError.

    The caller keeps or skips ``entry.size`` bytes and their padding before it takes the next entry.
    For a plain entry, it also does so with the header block before them.
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


def _extended(stream: TarStream, common: dict[bytes, bytes]) -> tuple[TarEntry, bytes] | None:
    """Return the next entry with the data of the headers before it.

    None if the archive ends with a global header.
    """
    records_before: list[tuple[bytes, bytes]] = []
    long_names: dict[bytes, bytes] = {}
    while True:
        block = stream.peek()
        if block is None or block == _END:
            if records_before or long_names:
                raise NotTarError(_CUT, code="layer-truncated")
            return None
        entry = parse(block)
        stream.skip(BLOCK)
        if entry.type not in EXTENSIONS:
            break
        body = _body(stream, entry)
        if entry.type == b"g":
            common.update(records(body))
        elif entry.type in (b"x", b"X"):
            records_before += records(body)
        else:
            long_names[entry.type] = body.partition(b"\0")[0]
    pax = {key: value for key, value in {**common, **dict(records_before)}.items() if value}
    entry.plain, entry.pax = False, pax
    entry.name = pax.get(b"path", long_names.get(b"L", entry.name))
    entry.link = pax.get(b"linkpath", long_names.get(b"K", entry.link))
    if b"size" in pax and entry.type not in BODILESS:
        entry.size = _decimal(pax[b"size"])
    _complete_sparse(entry, block, records_before, stream.read)
    return entry, block


def _body(stream: TarStream, entry: TarEntry) -> bytes:
    if not 0 <= entry.size <= _MAX_EXTENSION:
        raise NotTarError(f"a header in it claims {entry.size} bytes of names")
    return stream.read(entry.size + -entry.size % BLOCK)[: entry.size]


def _complete_sparse(
    entry: TarEntry, block: bytes, pax: list[tuple[bytes, bytes]], read: Callable[[int], bytes]
) -> None:
    """Add map, size and name to ``entry`` if it is sparse. ``read`` reads what follows its header.

    Raises NotTarError.
    """
    if entry.type == SPARSE:
        entry.type, entry.real_size = FILE, number(block[483:495])
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
    """Return a number of a PAX record. Raises NotTarError."""
    if not text.isdigit() or len(text) > 18:
        raise NotTarError(f"a PAX header in it has {text[:40]!r} instead of a number")
    return int(text)


def _old_map(block: bytes, read: Callable[[int], bytes]) -> list[tuple[int, int]]:
    parts = _map_fields(block[386:482])
    has_more = block[482]
    while has_more:
        block = read(BLOCK)
        parts += _map_fields(block[:504])
        has_more = block[504]
    return parts


def _map_fields(fields: bytes) -> list[tuple[int, int]]:
    pairs = [(fields[at : at + 12], fields[at + 12 : at + 24]) for at in range(0, len(fields), 24)]
    return [(number(offset), number(length)) for offset, length in pairs if offset[0] and length[0]]


def _map_from_body(entry: TarEntry, read: Callable[[int], bytes]) -> list[tuple[int, int]]:
    """Return the map of PAX 1.0, with which the stored data begins: lines of decimals."""
    text = b""
    line_count: int | None = None
    while line_count is None or text.count(b"\n") < line_count:
        if entry.size < BLOCK:
            raise NotTarError(_BAD_MAP)
        text += read(BLOCK)
        entry.size -= BLOCK
        if line_count is None and b"\n" in text:
            line_count = 1 + 2 * _decimal(text.partition(b"\n")[0])
    return _map_of([_decimal(line) for line in text.split(b"\n")[1:line_count]])


def _map_of(numbers: list[int]) -> list[tuple[int, int]]:
    if len(numbers) % 2:
        raise NotTarError(_BAD_MAP)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _check_map(parts: Iterable[tuple[int, int]], entry: TarEntry) -> None:
    end = stored = 0
    for offset, length in parts:
        if offset < end or length < 0:
            raise NotTarError(_BAD_MAP)
        end, stored = offset + length, stored + length
    if end > entry.real_size or stored > entry.size:
        raise NotTarError(_BAD_MAP)
