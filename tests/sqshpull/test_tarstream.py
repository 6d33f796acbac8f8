# SPDX-License-Identifier: Apache-2.0
"""Tests of reading tar as a stream: the same entries and contents as tarfile, in every format, and
incomplete ones.
"""

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from llmb_testing.sample_images import compress
from sqshpull.errors import PullError
from sqshpull.image_tar import write_image
from sqshpull.layers import FetchedLayer, pieces, read_names
from sqshpull.merge_layers import ImageTree, names_by_layer
from sqshpull.tar import NotTarError, TarStream, entries

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def through(tar: bytes) -> dict[str, bytes]:
    """The files of a tar after our reader and writer."""
    layer = FetchedLayer(label="it", file=io.BytesIO(tar), size=len(tar))
    names = read_names(layer)
    tree = ImageTree()
    tree.apply(0, names.names, names.types, names.links)
    found, bare = names_by_layer(tree, 1, ())
    out = io.BytesIO()
    write_image([layer], found, bare, [], mtime=0, write=out.write, advance=lambda count: None)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        files = [(member.name, archive.extractfile(member)) for member in archive if member.isreg()]
        return {name.removeprefix("./"): file.read() for name, file in files if file is not None}


@given(
    files=st.dictionaries(st.integers(0, 20), st.integers(0, 3_000), max_size=6),
    form=st.sampled_from(FORMATS),
    long=st.booleans(),
    dots=st.sampled_from(["", "./", "/"]),
)
def test_contents_come_through(files: dict[int, int], form: int, long: bool, dots: str) -> None:
    contents = {
        f"a{number}/" + ("n" * 70 + "/" + "m" * 40 if long else "n"): os.urandom(size)
        for number, size in files.items()
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, content in contents.items():
            info = tarfile.TarInfo(dots + name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert through(out.getvalue()) == contents


def test_large_files_cross_pieces() -> None:
    contents = {f"file{number}": os.urandom(700_000 * number + number) for number in range(5)}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert through(out.getvalue()) == contents


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_every_compression_is_read(compression: str) -> None:
    content = os.urandom(1000) * 3000
    packed = compress(content, compression)  # type: ignore[arg-type]  # parametrize gives text
    assert b"".join(pieces(io.BytesIO(packed))) == content
    if compression == "none":
        return
    assert b"".join(pieces(io.BytesIO(packed + packed))) == content * 2, (
        "several members are one file"
    )
    damaged = packed[: len(packed) // 3] + bytes([255]) * 40 + packed[len(packed) // 3 :]
    with pytest.raises(PullError) as caught:
        list(pieces(io.BytesIO(damaged)))
    assert caught.value.code == "layer-damaged"


@pytest.mark.parametrize(
    "options",
    [
        ["--format=gnu"],
        *(["--format=posix", f"--sparse-version={version}"] for version in ("0.0", "0.1", "1.0")),
    ],
    ids=lambda options: options[-1],
)
@pytest.mark.parametrize("parts", [1, 3, 40])
def test_sparse_files_of_gnu_tar(tmp_path: Path, options: list[str], parts: int) -> None:
    if (
        "GNU"
        not in subprocess.run(
            ["tar", "--version"], capture_output=True, text=True, check=False
        ).stdout
    ):
        pytest.skip("not here: GNU tar")
    with (tmp_path / "sparse").open("wb") as file:
        for number in range(parts):
            file.seek((3 * number + 1) * 65_536)
            file.write(b"data %d" % number * 700)
        file.truncate((3 * parts + 2) * 65_536 + 77)
    (tmp_path / "after").write_bytes(b"after")
    wanted = {name: (tmp_path / name).read_bytes() for name in ("sparse", "after")}
    subprocess.run(
        ["tar", "-C", tmp_path, "-S", *options, "-cf", tmp_path / "tar", *wanted], check=True
    )
    tar = (tmp_path / "tar").read_bytes()
    if len(tar) > len(wanted["sparse"]):
        pytest.skip(f"{tmp_path} is on a file system without sparse files")
    assert through(tar) == wanted


def test_a_global_pax_header_applies_to_all_that_follow() -> None:
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"uid": "123456789"}
    ) as archive:
        for name in ("one", "two"):
            archive.addfile(tarfile.TarInfo(name))
    stream = TarStream([out.getvalue()], lambda data: None)
    found = []
    for entry, _ in entries(stream):
        found.append((entry.name, entry.pax.get(b"uid"), entry.plain))
    assert found == [(b"one", b"123456789", False), (b"two", b"123456789", False)]


def test_an_incomplete_file_is_detected_at_any_length() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("n" * 150, "short"):
            info = tarfile.TarInfo(name)
            info.size = 700
            archive.addfile(info, io.BytesIO(bytes(700)))
    tar = out.getvalue()
    ends = {0, 512 * 5, 512 * 8}  # before the first entry, between the two, and after them
    for cut in range(0, 512 * 8 + 1, 128):
        if cut in ends:
            _read_all([tar[:cut]])
        else:
            with pytest.raises(NotTarError) as caught:
                _read_all([tar[:cut]])
            assert caught.value.code == "layer-truncated"


def _read_all(tar: list[bytes]) -> None:
    stream = TarStream(tar, lambda data: None)
    for entry, _ in entries(stream):
        stream.skip(entry.size + -entry.size % 512 + (512 if entry.plain else 0))


def test_extensions_are_bounded() -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 2**30
    with pytest.raises(NotTarError):
        _read_all([info.tobuf(tarfile.USTAR_FORMAT), bytes(2**20)])


def test_nothing_is_decompressed_that_is_not_read() -> None:
    read: list[int] = []

    def endless() -> Iterator[bytes]:
        for number in range(1_000_000):
            read.append(number)
            yield bytes(512)

    assert list(entries(TarStream(endless(), lambda data: None))) == []
    assert len(read) == 1
