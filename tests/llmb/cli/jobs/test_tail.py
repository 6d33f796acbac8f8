# SPDX-License-Identifier: Apache-2.0
"""Tests that a log is printed as it is, but for what would move a terminal's cursor or colour
it.
"""

import gzip
import io
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.cli.jobs.log_output import start_of_last_lines, tail
from llmb.contract.state import FAILED, JobState

Run = Callable[..., "subprocess.CompletedProcess[str]"]
TRACEBACK = (
    "Traceback (most recent call last):\n  File 'x', line 7\n\tmain()   # two "
    " blanks\n\nValueError: bad\n"
)


def printed(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    out = io.StringIO()
    assert tail(path, out, ended=lambda: True) == (content != b"")
    return out.getvalue()


def test_blanks_and_long_lines_are_kept(tmp_path: Path) -> None:
    text = TRACEBACK + "x" * 5000 + "\n" + "é" * 70000 + "\n   no end"
    assert printed(tmp_path / "log", text.encode()) == text


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"", ""),
        (b"\x1b[31mred\x1b[0m  \x1b]0;title\x07x\n", "red  x\n"),
        (b"a\x07b\x00c\n", "a b c\n"),
        (b"one\r\ntwo\r\n", "one\ntwo\n"),
        (b"  0%|\r 50%|\r100%|\n", "  0%|\n 50%|\n100%|\n"),
        (b"x" * 65535 + b"\r\nb", "x" * 65535 + "\nb"),
        (b"x" * 65533 + b"\x1b[31mred", "x" * 65533 + "red"),
        (b"cut \xc3", "cut \ufffd"),
        (b"cut \x1b[3", "cut  [3"),
    ],
)
def test_what_would_act_on_a_terminal(tmp_path: Path, content: bytes, shown: str) -> None:
    assert printed(tmp_path / "log", content) == shown


def test_a_log_that_grows_in_the_midst_of_a_sequence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = tmp_path / "log", io.StringIO()
    left = [b"  a\x1b[3", b"1mb\r", b"\n  c\xc3", b"\xa9"]
    seen: list[str] = []

    def ended() -> bool:
        with path.open("ab") as stream:
            stream.write(left.pop(0))
        return not left

    monkeypatch.setattr(time, "sleep", lambda seconds: seen.append(out.getvalue()))
    assert tail(path, out, ended=ended)
    assert [text.split("  ") for text in seen] == [["", "a"], ["", "ab"], ["", "ab\n", "c"]]
    assert out.getvalue().split("  ") == ["", "ab\n", "cé"]


@pytest.mark.parametrize("count", [1, 2, 3, 100, 5000])
@pytest.mark.parametrize("end", ["", "\n"])
def test_the_last_lines_are_those_of_tail(tmp_path: Path, count: int, end: str) -> None:
    """tail(1) of coreutils is the judge; the lines are together longer than what is read at
    once.
    """
    path = tmp_path / "log"
    path.write_text(
        "\n".join(f"line {number} {'x' * (number % 200)}" for number in range(2000)) + end
    )
    program = shutil.which("tail")
    assert program is not None
    wanted = subprocess.run(
        [program, "-n", str(count), path], capture_output=True, check=True
    ).stdout
    assert path.read_bytes()[start_of_last_lines(path, count) :] == wanted


@pytest.mark.parametrize(
    ("content", "count", "last"),
    [(b"", 3, b""), (b"a\r\nb\r\n", 1, b"b\r\n"), (b"1\r2\r3", 2, b"2\r3")],
)
def test_a_progress_bar_has_lines(tmp_path: Path, content: bytes, count: int, last: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    assert content[start_of_last_lines(path, count) :] == last
    assert start_of_last_lines(tmp_path / "gone", count) == 0


@pytest.mark.parametrize("kept", ["all", "a half"])
def test_a_compressed_log_is_printed_as_far_as_it_can_be_read(tmp_path: Path, kept: str) -> None:
    lines = "".join(f"line {number} {hash(number * 0.1)}\n" for number in range(3000))
    packed = gzip.compress(lines.encode())
    shown = printed(tmp_path / "log.gz", packed if kept == "all" else packed[: len(packed) // 2])
    assert lines.startswith(shown)
    assert len(shown) == len(lines) if kept == "all" else len(shown) > len(lines) // 3
    start = start_of_last_lines(tmp_path / "log.gz", 2)
    assert shown[start:].count("\n") in (1, 2)
    assert shown[start - 1] == "\n"


def test_a_failed_run_is_shown_with_its_cause_and_what_to_do(install: Any, run: Run) -> None:
    """The scheduler knows an exit code alone; the log says why."""
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    ended = JobState(state=FAILED, exit_code=1, started=100.0, ended=130.0)
    install.run("bad1", install.job("nemotron4_15b", "bf16", 16), log, ended)
    shown = json.loads(run("jobs", "show", "bad1", "--format", "json").stdout)
    assert "CUDA out of memory" in shown["reason"]
    assert shown["fix"]
    text = run("jobs", "show", "bad1").stdout
    assert ("CUDA out of memory" in text, "  hint  " in text) == (True, True)


def test_what_the_scheduler_says_comes_before_the_log(install: Any, run: Run) -> None:
    """A cancelled run may end with an error, which is not why it ended, and needs no fix."""
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    ended = JobState(state=FAILED, reason="node n1 failed", started=100.0, ended=130.0)
    install.run("bad1", install.job("nemotron4_15b", "bf16", 16), log, ended)
    shown = json.loads(run("jobs", "show", "bad1", "--format", "json").stdout)
    assert (shown["reason"], shown["fix"]) == ("node n1 failed", None)


def test_the_log_of_a_run_is_the_one_that_results_reads(install: Any, run: Run) -> None:
    made = install.measured("good1", 2.70)
    text = made.log.read_text()
    with gzip.open(f"{made.log}.gz", "wt") as packed:
        packed.write(text)
    made.log.unlink()
    for words in ([], ["--attempt", "1"]):
        assert run("jobs", "logs", "good1", *words).stdout == text
    assert run("jobs", "logs", "good1", "--path").stdout == f"{made.log}.gz\n"
    assert f"{made.log.name}.gz" in run("jobs", "show", "good1").stdout
    assert (
        json.loads(run("jobs", "show", "good1", "--format", "json").stdout)["log"]
        == f"{made.log}.gz"
    )
    requeued = made.directory / "attempt-2" / made.log.name
    requeued.parent.mkdir()
    requeued.write_text("the second\n")
    assert run("jobs", "logs", "good1").stdout == "the second\n"
    assert run("jobs", "logs", "good1", "--attempt", "1").stdout == text
