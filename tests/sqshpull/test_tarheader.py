# SPDX-License-Identifier: Apache-2.0
"""Tests of tar headers, against Python's own tarfile."""

import io
import tarfile
from typing import Literal

import pytest
from hypothesis import given, strategies as st

from sqshpull.tar import (
    BLOCK,
    FILE,
    SYMLINK,
    Attributes,
    NotTarError,
    attributes,
    header,
    number,
    padded,
    parse,
    records,
)

PART = st.binary(min_size=1, max_size=120).filter(
    lambda part: not {0, 47} & {*part} and part not in (b".", b"..")
)


@given(
    parts=st.lists(PART, min_size=1, max_size=4),
    link=st.binary(min_size=1, max_size=150).filter(lambda link: 0 not in link),
    mode=st.integers(0, 0o7777),
    uid=st.integers(0, 2**32 - 1),
    gid=st.integers(0, 2**32 - 1),
    mtime=st.integers(0, 2**32 - 1),
    value=st.binary(max_size=40),
)
def test_what_is_written_tarfile_reads(
    parts: list[bytes], link: bytes, mode: int, uid: int, gid: int, mtime: int, value: bytes
) -> None:
    name = b"/".join(parts)
    given = Attributes(
        mode=mode, uid=uid, gid=gid, mtime=mtime, xattrs=((b"SCHILY.xattr.user.a", value),)
    )
    text = header(name, SYMLINK, 0, given, link) + bytes(2 * BLOCK)
    with tarfile.open(fileobj=io.BytesIO(text), errors="surrogateescape") as archive:
        (found,) = archive.getmembers()
    assert found.name.encode("utf-8", "surrogateescape") == name
    assert found.linkname.encode("utf-8", "surrogateescape") == link
    assert (found.mode, found.uid, found.gid, found.mtime) == (mode, uid, gid, mtime)
    assert found.pax_headers["SCHILY.xattr.user.a"].encode("utf-8", "surrogateescape") == value


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_tarfile_writes_is_read(form: Literal[0, 1, 2]) -> None:
    info = tarfile.TarInfo("folder/" + "n" * (99 if form == tarfile.USTAR_FORMAT else 80))
    info.size, info.mode, info.uid, info.mtime = 7, 0o4711, 1_000, 1_700_000_000
    block = info.tobuf(form)
    entry = parse(block)
    assert (entry.name, entry.type, entry.size, entry.plain) == (info.name.encode(), FILE, 7, True)
    assert attributes(block, {}) == Attributes(mode=0o4711, uid=1_000, mtime=1_700_000_000)


def test_numbers_in_both_forms() -> None:
    info = tarfile.TarInfo("large")
    info.size, info.uid, info.mtime = 2**40, 2**31, -5
    block = info.tobuf(tarfile.GNU_FORMAT)
    assert parse(block).size == 2**40
    assert not parse(block).plain, "a time before 1970 is not what a squashfs can hold"
    assert attributes(block, {}) == Attributes(mode=0o644, uid=2**31, mtime=0)
    assert [number(text) for text in (b"0000644\0", b"    644 ", bytes(8), b"\xff" * 8)] == [
        0o644,
        0o644,
        0,
        -1,
    ]


@pytest.mark.parametrize("text", [b"0000689\0", b"-000001\0 "])
def test_what_is_no_number(text: bytes) -> None:
    with pytest.raises(NotTarError):
        number(text if text[0] != 45 else b"0x00001\0")


def test_pax_records() -> None:
    body = b"21 path=with newl\nin\n" + b"11 a=b=c=d\n"
    assert records(padded(body)) == [(b"path", b"with newl\nin"), (b"a", b"b=c=d")]


@pytest.mark.parametrize("body", [b"x", b"99 path=short\n", b"0 a=b\n", b"7 path\n", b"-1 a=b\n"])
def test_damaged_pax_records(body: bytes) -> None:
    with pytest.raises(NotTarError):
        records(body)


def test_a_damaged_header_is_found() -> None:
    block = header(b"name", FILE, 5, Attributes())
    for at in (0, 130, 160):
        with pytest.raises(NotTarError):
            parse(block[:at] + bytes([block[at] ^ 1]) + block[at + 1 :])
