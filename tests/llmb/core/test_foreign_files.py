# SPDX-License-Identifier: Apache-2.0
"""Files of others that are no files: pipes, devices, files without an end, lists that would fill
the memory. Nothing waits for them, and each is a fault of its own.
"""

import errno
import gzip
import os
import time
import tracemalloc
from pathlib import Path

import pytest

from llmb.core import files, scan, yamlfile
from llmb.core.node_lists import expand, is_list
from llmb.core.scalars import convert
from llmb.errors import InputFaults, KeyFaultError, LlmbError, UsageError

pytestmark = pytest.mark.fault("foreign-files")


@pytest.fixture(params=["pipe", "device", "link to a device"])
def no_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "log-x_1.out"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        return Path("/dev/zero")
    else:
        path.symlink_to("/dev/zero")
    return path


def test_no_reader_waits_for_a_pipe_or_reads_a_device(no_file: Path) -> None:
    for read in (scan.open_log, files.open_regular, lambda path: files.read_start(path, 10)):
        with pytest.raises(OSError, match="not a regular file") as raised:
            read(no_file)
        assert raised.value.errno == errno.EINVAL
    with pytest.raises(LlmbError, match="not a regular file"):
        files.read_json(no_file)
    with pytest.raises(UsageError, match="not a regular file"):
        files.read_text(no_file, most=100)


def test_a_file_is_read_to_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_text("0123456789")
    assert files.read_start(path, 4) == b"0123"
    assert files.read_text(path, most=10) == "0123456789"
    with pytest.raises(UsageError, match="larger than 9 bytes"):
        files.read_text(path, most=9)
    monkeypatch.setattr(files, "_LARGEST_JSON", 5)
    with pytest.raises(LlmbError, match="larger than 5 bytes"):
        files.read_json(path)


def test_a_log_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file of 8 TiB takes no space, and hours to read; so does one in gzip."""
    path = tmp_path / "log-x_1.out"
    path.touch()
    os.truncate(path, 8 << 40)
    with pytest.raises(OSError, match="larger than 64 GiB"):
        scan.open_log(path)
    path.write_bytes(gzip.compress(bytes(4 << 20)))
    monkeypatch.setattr(scan, "LARGEST", 1 << 20)
    with pytest.raises(OSError, match="larger than"), scan.open_log(path) as stream:
        for _ in scan.read_blocks(stream):
            pass


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO])
def test_a_failing_file_system_is_no_damaged_file(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise OSError(code, os.strerror(code))

    for name in ("open", "stat"):
        monkeypatch.setattr(os, name, fail)
    with pytest.raises(LlmbError) as raised:
        files.read_json(tmp_path)
    assert raised.value.code == "file-unreadable"
    assert not files.exists(tmp_path)
    assert not files.is_file(tmp_path)
    assert not files.is_folder(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "n[" + ",".join(["0-99999"] * 250) + "]",
        "n" + "[0-99999]" * 200,
        ",".join(["n[0-99999]"] * 200),
        "n[" + "0" * 2000 + "-99999]",
        f"n[1-{'9' * 5000}]",
        f"n[{'1' * 5000}-{'9' * 5000}]",
        "n" + "[" * 2000,
    ],
)
def test_a_list_of_nodes_costs_no_memory(text: str) -> None:
    tracemalloc.start()
    started = time.monotonic()
    count = sum(1 for _ in expand(text))
    is_list(text)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count <= 100_000
    assert most < 30e6
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("text", ['"a\\0b"', '"\\ud800"', '"\\udcff"'])
def test_text_that_no_file_can_have_is_a_fault_with_its_place(text: str) -> None:
    for document in (f"a: 1\nb: {text}\n", f"a: 1\n{text}: 1\n"):
        with pytest.raises(InputFaults) as raised:
            yamlfile.parse(document, name="c.yaml")
        assert raised.value.faults[0].place == "c.yaml:2"


def test_a_number_of_5000_digits_is_a_fault() -> None:
    with pytest.raises(KeyFaultError):
        convert(int, "9" * 5000)
    with pytest.raises(InputFaults):
        yamlfile.parse(f"a: {'9' * 5000}", name="c.yaml")
