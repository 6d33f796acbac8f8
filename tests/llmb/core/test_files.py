# SPDX-License-Identifier: Apache-2.0
"""Tests of the writing of files: whole or not at all."""

import errno
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import llmb
import llmb_installer
from llmb.core import files, shell
from llmb.errors import LlmbError, UsageError

# A process that may not write more than 1000 bytes into a file, as on a disk that is full.
FULL_DISK = """
import resource, sys
from pathlib import Path
from llmb.core import files
from llmb.errors import LlmbError, UsageError
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    getattr(files, sys.argv[1])(Path(sys.argv[2]), "new" * 1000)
except LlmbError as error:
    print(error.code, error.value)
"""


def test_a_home_folder_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.expand("~/x") == Path.home() / "x" == files.at_home("~/x")
    assert files.expand("~no-such-user/x") == Path("~no-such-user/x")

    def unknown(path: Path) -> Path:
        raise RuntimeError(path)

    monkeypatch.setattr(Path, "expanduser", unknown)
    with pytest.raises(LlmbError) as caught:
        files.at_home("~/x")
    assert caught.value.code == "home-unknown"


def test_text_is_written_with_its_folders_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "a/b/file"
    files.write_text(path, "größe", mode=0o600)
    files.write_text(path, "größer", mode=0o600)
    assert path.read_text(encoding="utf-8") == "größer"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_text_that_is_not_utf_8_comes_back_as_its_bytes(tmp_path: Path) -> None:
    text = os.fsdecode(b"gr\xc3\xb6\xdfe")
    files.write_text(tmp_path / "text", text)
    assert (tmp_path / "text").read_bytes() == b"gr\xc3\xb6\xdfe"
    files.write_json(tmp_path / "data.json", [text])
    assert files.read_json(tmp_path / "data.json") == [text]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_who_may_write_a_file_is_the_umasks_business(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        files.write_text(tmp_path / "text", "")
        files.create_text(tmp_path / "new", "")
        files.write_folder(tmp_path / "folder", {"inside": ""})
        files.write_json(tmp_path / "data.json", {})
    finally:
        os.umask(before)
    names = ("text", "new", "folder/inside", "data.json")
    assert {name: (tmp_path / name).stat().st_mode & 0o777 for name in names} == dict.fromkeys(
        names, mode
    )


@pytest.mark.parametrize(
    ("text", "at", "over", "after"),
    [
        ("NEW", 0, None, "NEW two three"),
        ("TWO", 4, "two", "one TWO three"),
        ("TWO", 4, "too", None),
        ("LONGER", 4, "two", None),
        ("ee!", 12, "ee!", None),
    ],
)
def test_a_few_characters_are_written_in_place(
    text: str, at: int, over: str | None, after: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_text("one two three")
    inode = path.stat().st_ino
    assert files.overwrite(path, text, at=at, over=over) is (after is not None)
    assert path.read_text() == ("one two three" if after is None else after)
    assert path.stat().st_ino == inode


def test_nothing_is_written_into_a_file_that_is_gone(tmp_path: Path) -> None:
    assert not files.overwrite(tmp_path / "file", "text")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_text(path, "old" * 100)
    done = shell.run([sys.executable, "-c", FULL_DISK, "write_text", str(path)])
    assert done.out.split() == ["file-unwritable", str(path)]
    assert path.read_text() == "old" * 100
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_creates_nothing(tmp_path: Path) -> None:
    done = shell.run([sys.executable, "-c", FULL_DISK, "create_text", str(tmp_path / "file")])
    assert done.out.split() == ["file-unwritable", str(tmp_path / "file")]
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LlmbError) as caught:
        files.write_text(tmp_path / "file/inside", "")
    assert (caught.value.code, caught.value.value) == (
        "file-unwritable",
        str(tmp_path / "file/inside"),
    )


def test_of_many_creators_one_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: files.create_text(path, str(number)), range(40)))
    assert won.count(True) == 1
    assert path.read_text() == str(won.index(True))
    assert list(tmp_path.iterdir()) == [path]


def test_creating_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    path = tmp_path / "file"
    assert files.create_text(path, "first")
    assert not files.create_text(path, "second")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_creating_where_the_answer_of_the_server_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link_and_fail(path: Path, target: Path) -> None:
        os.link(target, path)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr(Path, "hardlink_to", link_and_fail)
    assert files.create_text(tmp_path / "file", "mine")


def test_a_folder_is_written_whole_and_once(tmp_path: Path) -> None:
    folder = tmp_path / "a/folder"
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda n: files.write_folder(folder, {"x/one": str(n), "two": str(n)}), range(8)
            )
        )
    assert (folder / "x/one").read_text() == (folder / "two").read_text()
    assert list(folder.parent.iterdir()) == [folder]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LlmbError) as raised:
        files.write_folder(tmp_path / "file/folder", {"x": ""})
    assert raised.value.code == "file-unwritable"


def test_json_comes_back(tmp_path: Path) -> None:
    data = {"a": [1, None, "ö"]}
    files.write_json(tmp_path / "file", data)
    assert files.read_json(tmp_path / "file") == data
    assert files.read_json(tmp_path / "none") is None


def test_damaged_json_is_an_error_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{")
    with pytest.raises(LlmbError) as caught:
        files.read_json(tmp_path / "file")
    assert (caught.value.code, caught.value.value) == ("file-damaged", str(tmp_path / "file"))


def test_a_long_log_is_rotated(tmp_path: Path) -> None:
    log = tmp_path / "log"
    files.rotate(log, limit=3)
    log.write_text("abc")
    files.rotate(log, limit=3)
    assert log.exists()
    log.write_text("abcd")
    files.rotate(log, limit=3)
    assert not log.exists()
    assert (tmp_path / "log.1").read_text() == "abcd"


def test_writing_in_place_on_a_full_disk_that_tells_only_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS does."""
    path, close = tmp_path / "file", os.close
    path.write_text("old")

    def full(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "close", full)
    assert not files.overwrite(path, "new")


def test_an_output_replaces_the_target_of_a_link_and_is_written_to_a_pipe(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "there" / "target", tmp_path / "link", tmp_path / "pipe"
    target.parent.mkdir()
    link.symlink_to(target)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (link, link, pipe):
        with files.output(path) as stream:
            stream.write(b"new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert (link.is_symlink(), target.read_bytes(), pipe.is_fifo()) == (True, b"new", True)
    with pytest.raises(ZeroDivisionError), files.output(link) as stream:
        stream.write(bytes(1 // 0))
    assert target.read_bytes() == b"new"
    with pytest.raises(LlmbError) as refused, files.output(tmp_path / "no" / "file"):
        pass
    assert refused.value.code == "file-unwritable"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link", "pipe", "target", "there"]


def test_only_expand_asks_for_a_home_folder() -> None:
    """Path.expanduser raises RuntimeError for ``~nobody``: in a variable, that would end every
    command.
    """
    sources = [
        path
        for package in (llmb, llmb_installer)
        for path in Path(package.__path__[0]).rglob("*.py")
    ]
    found = {path.name for path in sources if ".expanduser()" in path.read_text("utf-8")}
    assert found == {"files.py", "scalars.py"}  # the second reports the key
    assert files.expand("~nobody-at-all/x") == Path("~nobody-at-all/x")


def test_an_unknown_home_folder_in_a_variable(
    llmb_here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMB_PLUGINS", "~nobody-at-all/plugins")
    done = llmb_here("list")
    assert done.returncode == 0
    assert "~nobody-at-all/plugins" in done.stderr


def test_a_missing_file_is_sought_beside_it(tmp_path: Path) -> None:
    for name in ("jobs-h100.yaml", "night.tar.zst", "other"):
        (tmp_path / name).touch()
    (tmp_path / "jobs.d").mkdir()
    near = {"jobs-h100.yml": "jobs-h100.yaml", "Night.tar.zst": "night.tar.zst"}
    for wrong, right in near.items():
        with pytest.raises(UsageError) as raised:
            files.read_text(tmp_path / wrong)
        assert raised.value.hint == f"did you mean '{tmp_path / right}'?"
    for wrong in ("jobs.e", "answers.yaml", "gone/jobs-h100.yaml"):
        assert files.suggest_file(tmp_path / wrong) is None
