# SPDX-License-Identifier: Apache-2.0
"""Archives that claim to be large, links to private files, and writers that are killed."""

import hashlib
import io
import json
import os
import signal
import tarfile
import time
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from llmb.core import files
from llmb.core.scan import open_log
from llmb.errors import LlmbError
from llmb.show.archive import contents, tar_file
from llmb.show.archive.contents import MANIFEST, Content, content_of
from llmb.show.archive.tar_file import unpack

pytestmark = pytest.mark.fault("archives")
MB = 1 << 20


def archive(members: list[tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]], path: Path) -> Path:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            info, data = member if isinstance(member, tuple) else (member, b"")
            raw.write(info.tobuf(tarfile.PAX_FORMAT) + data + bytes(-len(data) % 512))
        raw.write(bytes(1024))
        tar.offset = raw.tell()
    path.write_bytes(zstandard.compress(raw.getvalue()))
    return path


def member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info


def refused(path: Path, folder: Path) -> LlmbError:
    """The error of an archive that is refused quickly, with little memory, and writes nothing."""
    folder.mkdir()
    tracemalloc.start()
    started = time.monotonic()
    with pytest.raises(LlmbError) as raised:
        unpack(path, folder)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert raised.value.code == "archive-damaged"
    assert most < 60 * MB
    assert time.monotonic() - started < 20
    assert sum(file.stat().st_size for file in folder.rglob("*")) <= 64 * MB
    return raised.value


def test_sparse_files_are_refused(tmp_path: Path) -> None:
    """73 bytes of an archive became a file of 3 GB."""
    sparse = member("big", kind=tarfile.GNUTYPE_SPARSE)
    buffer = bytearray(sparse.tobuf(tarfile.GNU_FORMAT))
    buffer[483:495] = b"%011o\0" % (3 << 30)
    buffer[148:156] = b" " * 8
    buffer[148:155] = b"%06o\0" % sum(buffer)
    path = tmp_path / "a.tar.zst"
    path.write_bytes(zstandard.compress(bytes(buffer) + bytes(1024)))
    assert "does not belong" in str(refused(path, tmp_path / "folder"))


@pytest.mark.parametrize("version", ["0.0", "0.1", "1.0"])
def test_sparse_files_by_their_extended_header(version: str, tmp_path: Path) -> None:
    major, minor = version.split(".")
    info = member("big", 512)
    info.pax_headers = {
        "GNU.sparse.major": major,
        "GNU.sparse.minor": minor,
        "GNU.sparse.size": str(3 << 30),
        "GNU.sparse.realsize": str(3 << 30),
        "GNU.sparse.name": "big",
        "GNU.sparse.map": "0,1",
        "GNU.sparse.numblocks": "1",
    }
    path = archive([(info, b"1\n0\n1\n".ljust(512, b"\0"))], tmp_path / "a.tar.zst")
    assert "does not belong" in str(refused(path, tmp_path / "folder"))


@pytest.mark.parametrize(
    "kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK]
)
def test_a_header_costs_no_memory(kind: bytes, tmp_path: Path) -> None:
    """Its text of 100 MB is a few kB in the archive, and tarfile would read it whole."""
    path = tmp_path / "a.tar.zst"
    header = member("x", 100 * MB, kind).tobuf(tarfile.GNU_FORMAT)
    path.write_bytes(zstandard.compress(header + bytes(100 * MB)))
    assert "does not belong" in str(refused(path, tmp_path / "folder"))


def test_bounds_of_a_member_of_all_and_of_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive([(member("zeros", 4 * MB), bytes(4 * MB))], tmp_path / "a.tar.zst")
    for name, value in (("_MOST_MEMBER", MB), ("_MOST", MB), ("_MOST_MEMBERS", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(tar_file, name, value)
            assert "larger than" in str(refused(path, tmp_path / f"folder{name}"))
    with monkeypatch.context() as patch:  # 4 MB of zeros are 150 bytes
        patch.setattr(tar_file, "_ALWAYS", 0)
        assert "larger than" in str(refused(path, tmp_path / "folder-ratio"))


def test_only_what_the_manifest_lists(tmp_path: Path) -> None:
    """With its size: neither a file more nor one less."""
    listed = {"bytes": 1, "sha256": hashlib.sha256(b"a").hexdigest()}
    manifest = {
        "schema_version": 1,
        "llmb_version": "0",
        "created": "",
        "runs": 0,
        "omitted": {},
    }
    for number, named in enumerate(({"a": listed, "b": listed}, {}, {"a": {**listed, "bytes": 2}})):
        data = json.dumps({**manifest, "files": named}).encode()
        path = archive(
            [(member("a", 1), b"a"), (member(MANIFEST, len(data)), data)],
            tmp_path / f"{number}.tar.zst",
        )
        assert "not what was archived" in str(refused(path, tmp_path / f"folder{number}"))


def test_a_link_of_another_user_to_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its maker could not read it; whoever writes the archive can, and would send it."""
    private, link = tmp_path / "id_key", tmp_path / "log-x.out"
    private.write_text("private")
    private.chmod(0o600)
    link.symlink_to(private)
    assert contents._may_follow(link)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    monkeypatch.setattr(
        Path, "lstat", lambda path: os.stat_result((0o120777, 0, 0, 1, 12345, 0, 0, 0, 0, 0))
    )
    assert not contents._may_follow(link)
    private.chmod(0o644)
    is_open = all(folder.stat().st_mode & 0o001 for folder in private.parents)
    assert contents._may_follow(link) == is_open


def test_a_file_that_becomes_a_link_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, path = tmp_path / "private", tmp_path / "log"
    private.write_text("private")
    path.write_text("harmless")
    assert isinstance(content_of(path), Content)

    def swapped(path: Path) -> object:
        path.unlink()
        path.symlink_to(private)
        return open_log(path)

    monkeypatch.setattr(contents, "open_log", swapped)
    assert not isinstance(content_of(path), Content)


@pytest.mark.parametrize("has_nameless_files", [True, False])
def test_a_killed_writer_leaves_nothing(
    has_nameless_files: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or, where every file has a name, the next writer removes it."""
    if not has_nameless_files:
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY | os.O_WRONLY)
    path = tmp_path / "a.tar.zst"
    child = os.fork()
    if child == 0:
        with files.output(path) as stream:
            stream.write(b"half")
            stream.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    left = list(tmp_path.iterdir())
    assert bool(left) != has_nameless_files
    for part in left:
        os.utime(part, (1, 1))
    (tmp_path / ".other.part").touch()
    with files.output(tmp_path / "b.tar.zst") as stream:
        stream.write(b"whole")
    assert sorted(file.name for file in tmp_path.iterdir()) == [".other.part", "b.tar.zst"]
    assert (tmp_path / "b.tar.zst").read_bytes() == b"whole"
    with files.output(tmp_path / "b.tar.zst") as stream:
        stream.write(b"again")
    assert (tmp_path / "b.tar.zst").read_bytes() == b"again"
