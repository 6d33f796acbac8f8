# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the headers of tar files: ustar, GNU and PAX. Python's tarfile takes four times as long."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from llmb.errors import LlmbError

BLOCK = 512
FILE, HARD, SYMLINK, CHAR, BLOCKDEV, FOLDER, FIFO = b"0", b"1", b"2", b"3", b"4", b"5", b"6"
DEVICES = (CHAR, BLOCKDEV)
EXTENSIONS = (b"x", b"g", b"X", b"L", b"K")  # headers with data of the next entry
SPARSE = b"S"
_GNU = b"ustar  \0"
BODILESS = (HARD, SYMLINK, CHAR, BLOCKDEV, FOLDER, FIFO)
_MAX_TIME = 2**32 - 1  # the largest time and owner of squashfs
_XATTRS = (b"SCHILY.xattr.user.", b"SCHILY.xattr.trusted.", b"SCHILY.xattr.security.")  # the namespaces of squashfs


class NotTarError(LlmbError):
    """The data is not a tar file, or a damaged or incomplete one."""

    def __init__(self, message: str, *, code: str = "layer-damaged") -> None:
        super().__init__(message, code=code)


@dataclass(slots=True)
class Entry:
    """One entry of a tar file; ``size`` are the bytes that follow its header, ``name`` has no slash at either end.

    ``plain``: one header block describes it completely and can be copied. ``real_size`` and ``sparse`` (offset and
    length of each stored part) are set for a sparse file.
    """

    name: bytes
    type: bytes
    size: int
    plain: bool
    link: bytes = b""
    pax: dict[bytes, bytes] = field(default_factory=dict)
    real_size: int = 0
    sparse: list[tuple[int, int]] | None = None


def parse(block: bytes) -> Entry:
    """The entry whose header is ``block``. Raises NotTarError."""
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
    plain = plain and not (block[108] | block[116] | block[124] | block[136]) & 0x80  # no number in base 256
    plain = plain and number(block[136:148]) <= _MAX_TIME
    return Entry(raw, kind, size, plain, link)


def number(field_: bytes) -> int:
    """A number in a header: octal digits, or base 256 as GNU writes large ones. Raises NotTarError."""
    if field_[0] & 0x80:
        value = int.from_bytes(field_, "big")
        return value - (1 << 8 * len(field_)) if field_[0] == 0xFF else value - (0x80 << 8 * (len(field_) - 1))
    try:
        return int(field_.partition(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        raise NotTarError(f"a header in it has {field_!r} instead of a number") from None


def records(body: bytes) -> list[tuple[bytes, bytes]]:
    """The records of a PAX header in order: ``<length> <key>=<value>\\n`` each. Raises NotTarError."""
    found = []
    while body.strip(b"\0"):
        length, space, _ = body.partition(b" ")
        if not space or not length.isdigit() or not len(length) + 3 <= int(length) <= len(body):
            raise NotTarError("a PAX header in it is damaged")
        key, equals, value = body[len(length) + 1 : int(length) - 1].partition(b"=")
        if not equals:
            raise NotTarError("a PAX header in it is damaged")
        found.append((key, value))
        body = body[int(length) :]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """The attributes that squashfs stores for an entry; ``mtime`` in seconds since 1970."""

    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    device: tuple[int, int] = (0, 0)
    xattrs: tuple[tuple[bytes, bytes], ...] = ()


def attributes(block: bytes, pax: dict[bytes, bytes]) -> Attributes:
    """The attributes in a header and its PAX records; numbers too large for squashfs become its largest."""
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
    """The header blocks of an entry: one, after a PAX header where one is too small."""
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


def _ustar(name: bytes, prefix: bytes, kind: bytes, size: int, given: Attributes, link: bytes) -> bytes:
    def octal(value: int, digits: int) -> bytes:
        return b"%0*o\0" % (digits, value % 8**digits)

    parts: Iterable[bytes] = (
        name.ljust(100, b"\0"),
        octal(given.mode, 7),
        octal(given.uid, 7),
        octal(given.gid, 7),
        octal(size, 11),
        octal(given.mtime, 11),
        b" " * 8,
        kind,
        link.ljust(100, b"\0"),
        b"ustar\x0000",
        bytes(64),
        octal(given.device[0], 7),
        octal(given.device[1], 7),
        prefix.ljust(155, b"\0"),
        bytes(12),
    )
    block = b"".join(parts)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _record(item: tuple[bytes, bytes]) -> bytes:
    rest = b" %s=%s\n" % item
    length = len(rest) + 1
    while len(rest) + len(str(length)) != length:
        length = len(rest) + len(str(length))
    return b"%d" % length + rest
