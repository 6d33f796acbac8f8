# SPDX-License-Identifier: Apache-2.0
"""Tests of the bytes that environments report, by the output of the real uv 0.13 and pip 23.2 and
24.1.
"""

import pytest

from llmb.core.shell import StoppedError
from llmb_installer.venv.tools import Downloads

UV = """\
Using Python 3.11.7 environment at: v
Resolved 4 packages in 302ms
Downloading numpy (16.1MiB)
Downloading pandas (11.8MiB)
 Downloaded pandas
 Downloaded numpy
Prepared 4 packages in 322ms
"""
PIP = """\
Processing /opt/files/numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl
Collecting pandas
  Downloading pandas-3.1.1-cp311-cp311-manylinux_2_28_x86_64.whl (12.4 MB)
     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 12.4/12.4 MB 290.7 MB/s eta 0:00:00
Collecting tzdata (from pandas)
  Downloading tzdata-2026.6-py2.py3-none-any.whl (348 kB)
     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 348.2/348.2 kB 521.5 MB/s eta 0:00:00
Installing collected packages: tzdata, numpy, pandas
"""
RAW = """\
  Downloading pandas-3.1.1-cp311-cp311-manylinux_2_28_x86_64.whl (12.4 MB)
Progress 0 of 12400000
Progress 4000000 of 12400000
"""
MIB = 2**20


class Seen:
    """Progress that remembers the bytes, the totals and the texts."""

    def __init__(self) -> None:
        self.done, self.of, self.texts, self.stops = 0, 0, list[str](), False

    def total(self, bytes: int) -> None:
        if self.stops:
            raise StoppedError("interrupted")
        self.of = bytes

    def advance(self, bytes: int) -> None:
        self.done += bytes

    def say(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize("size", [1, 7, 10_000], ids=["a byte at a time", "parts", "at once"])
@pytest.mark.parametrize(
    ("output", "total"),
    [(UV, int(16.1 * MIB) + int(11.8 * MIB)), (PIP, 12_400_000 + 348_000)],
    ids=["uv", "pip"],
)
def test_all_bytes_are_counted(output: str, total: int, size: int) -> None:
    seen, data = Seen(), output.encode()
    downloads = Downloads(seen)
    for start in range(0, len(data), size):
        downloads(data[start : start + size])
    assert (seen.done, seen.of) == (total, total)
    assert seen.texts[-1] == "", "nothing is being downloaded any more"


def test_bytes_of_what_is_running() -> None:
    seen = Seen()
    Downloads(seen)(UV.partition(" Downloaded numpy")[0].encode())
    assert (seen.done, seen.of) == (int(11.8 * MIB), int(16.1 * MIB) + int(11.8 * MIB))
    assert seen.texts[-1] == "numpy"


def test_pip_reports_within_a_file() -> None:
    seen = Seen()
    downloads = Downloads(seen)
    downloads(RAW.encode())
    assert (seen.done, seen.of, seen.texts[-1]) == (4_000_000, 12_400_000, "pandas")
    downloads(b"Installing collected packages: pandas\n")
    assert seen.done == 12_400_000


def test_the_largest_of_several_is_named() -> None:
    seen = Seen()
    Downloads(seen)(b"Downloading a (1.0MiB)\nDownloading torch (846.1MiB)\nDownloading b (2KiB)\n")
    assert "torch" in seen.texts[-1]
    assert "2" in seen.texts[-1]


def test_an_interrupt_does_not_stop_the_reading() -> None:
    seen = Seen()
    seen.stops = True
    Downloads(seen)(UV.encode())
