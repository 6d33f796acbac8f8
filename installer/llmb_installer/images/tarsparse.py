# SPDX-License-Identifier: Apache-2.0
"""Files of which a tar holds only the parts that are not zero: old GNU's way, and the three of PAX."""

from collections.abc import Callable, Iterable

from llmb_installer.images.tarheader import BLOCK, FILE, SPARSE, Entry, NotTarError, number

_OFFSET, _LENGTH, _MAP = b"GNU.sparse.offset", b"GNU.sparse.numbytes", b"GNU.sparse.map"


def complete(entry: Entry, block: bytes, pax: list[tuple[bytes, bytes]], read: Callable[[int], bytes]) -> None:
    """Give ``entry`` its parts and its name where it is sparse; ``read`` gives what follows its header.

    Raises NotTarError.
    """
    if entry.type == SPARSE:
        entry.type, entry.real_size = FILE, number(block[483:495])
        entry.sparse = _old(block, read)
    elif entry.pax.get(b"GNU.sparse.major") == b"1":
        entry.real_size = decimal(entry.pax.get(b"GNU.sparse.realsize", b""))
        entry.sparse = _from_body(entry, read)
    elif _MAP in entry.pax:
        entry.real_size = decimal(entry.pax.get(b"GNU.sparse.size", b""))
        entry.sparse = _pairs([decimal(word) for word in entry.pax[_MAP].split(b",")])
    elif b"GNU.sparse.size" in entry.pax:
        entry.real_size = decimal(entry.pax[b"GNU.sparse.size"])
        entry.sparse = _pairs([decimal(value) for key, value in pax if key in (_OFFSET, _LENGTH)])
    if entry.sparse is not None:
        entry.name = entry.pax.get(b"GNU.sparse.name", entry.name)
        _check(entry.sparse, entry)


def decimal(text: bytes) -> int:
    """A number of a PAX record. Raises NotTarError."""
    if not text.isdigit() or len(text) > 18:
        raise NotTarError(f"a PAX header of it holds {text[:40]!r} where a number belongs")
    return int(text)


def _old(block: bytes, read: Callable[[int], bytes]) -> list[tuple[int, int]]:
    found = _fields(block[386:482])
    more = block[482]
    while more:
        block = read(BLOCK)
        found += _fields(block[:504])
        more = block[504]
    return found


def _fields(fields: bytes) -> list[tuple[int, int]]:
    pairs = [(fields[at : at + 12], fields[at + 12 : at + 24]) for at in range(0, len(fields), 24)]
    return [(number(offset), number(length)) for offset, length in pairs if offset[0] and length[0]]


def _from_body(entry: Entry, read: Callable[[int], bytes]) -> list[tuple[int, int]]:
    """PAX 1.0: the map is the beginning of what is stored, as decimal lines in whole blocks."""
    text = b""
    wanted: int | None = None
    while wanted is None or text.count(b"\n") < wanted:
        if entry.size < BLOCK:
            raise NotTarError("the map of a sparse file in it is damaged")
        text += read(BLOCK)
        entry.size -= BLOCK
        if wanted is None and b"\n" in text:
            wanted = 1 + 2 * decimal(text.partition(b"\n")[0])
    return _pairs([decimal(line) for line in text.split(b"\n")[1:wanted]])


def _pairs(numbers: list[int]) -> list[tuple[int, int]]:
    if len(numbers) % 2:
        raise NotTarError("the map of a sparse file in it is damaged")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _check(parts: Iterable[tuple[int, int]], entry: Entry) -> None:
    end = stored = 0
    for offset, length in parts:
        if offset < end or length < 0:
            raise NotTarError("the map of a sparse file in it is damaged")
        end, stored = offset + length, stored + length
    if end > entry.real_size or stored > entry.size:
        raise NotTarError("the map of a sparse file in it is damaged")
