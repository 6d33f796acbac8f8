# SPDX-License-Identifier: Apache-2.0
"""Tests of the starting of processes."""

import errno
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.core import shell
from llmb.core.process import ProcessId
from llmb.errors import LlmbError

NOWHERE = "/nowhere/program"


def test_what_is_given_is_its_standard_input() -> None:
    assert shell.run(["cat"], stdin="käse").out == "käse"
    assert shell.run(["cat"]).out == ""


def test_a_run_gives_code_and_output(tmp_path: Path) -> None:
    code = (
        "import os, sys; print(os.getcwd(), os.environ['A'], sys.stdin.read()); sys.exit('bad"
        " \\udcff')"
    )
    done = shell.run([sys.executable, "-c", code], env={"A": "1"}, cwd=tmp_path)
    assert (done.code, done.out, done.err) == (1, f"{tmp_path} 1 \n", "bad \\udcff\n")


def test_what_cannot_be_started_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    gone = tmp_path / "gone"
    starts: list[tuple[Callable[[], object], str, str, str]] = [
        (lambda: shell.run([NOWHERE]), "program-not-found", NOWHERE, ""),
        (lambda: shell.run_logged([NOWHERE], log), "program-not-found", NOWHERE, ""),
        (
            lambda: shell.spawn([NOWHERE], env={}, cwd=tmp_path, log=log),
            "program-not-found",
            NOWHERE,
            "",
        ),
        (lambda: shell.run(["/bin/true"], cwd=gone), "program-not-started", "/bin/true", str(gone)),
        (lambda: shell.run([str(log)]), "program-not-started", str(log), os.strerror(errno.EACCES)),
        (
            lambda: shell.spawn(["/bin/true"], env={}, cwd=tmp_path, log=gone / "log"),
            "file-unwritable",
            str(gone / "log"),
            "",
        ),
    ]
    for start, code, value, named in starts:
        with pytest.raises(LlmbError) as caught:
            start()
        assert (caught.value.code, caught.value.value, named in caught.value.message) == (
            code,
            value,
            True,
        )


def test_a_run_that_takes_too_long() -> None:
    with pytest.raises(LlmbError) as caught:
        shell.run(["sleep", "600"], timeout=0.1)
    assert (caught.value.code, caught.value.value) == ("program-timeout", "sleep")


def test_output_is_appended_to_a_log(tmp_path: Path) -> None:
    log = tmp_path / "logs/log"
    assert shell.run_logged(["echo", "one"], log) == 0
    assert shell.run_logged([sys.executable, "-c", "import sys; sys.exit('two')"], log, env={}) == 1
    process = shell.spawn(["echo", "three"], env={}, cwd=tmp_path, log=log)
    assert process.wait() == 0
    assert log.read_text().split() == ["one", "two", "three"]


@pytest.mark.parametrize("session", [True, False])
def test_a_session_of_its_own(tmp_path: Path, session: bool) -> None:
    process = shell.spawn(
        ["sleep", "600"], env={}, cwd=tmp_path, log=tmp_path / "log", session=session
    )
    assert (os.getsid(process.pid) == process.pid) == session
    process.kill()
    process.wait()


def test_letting_go_raises_no_warning(tmp_path: Path) -> None:
    process = shell.spawn(["sleep", "600"], env={}, cwd=tmp_path, log=tmp_path / "log")
    pid = process.pid
    shell.let_go(process)
    del process
    gc.collect()  # warnings are errors here
    os.kill(pid, 9)
    os.waitpid(pid, 0)


def test_one_that_is_about_to_end_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that does not end after all is forgotten without a warning."""
    soon = shell.spawn(["sleep", "0.2"], env={}, cwd=tmp_path, log=tmp_path / "log")
    monkeypatch.setattr(shell, "GRACE", 180.0)
    shell.reap(soon)
    with pytest.raises(ChildProcessError):
        os.waitpid(soon.pid, 0)
    never = shell.spawn(["sleep", "600"], env={}, cwd=tmp_path, log=tmp_path / "log")
    pid = never.pid
    monkeypatch.setattr(shell, "GRACE", 0.0)
    shell.reap(never)
    del never
    gc.collect()  # warnings are errors here
    os.kill(pid, 9)
    os.waitpid(pid, 0)


def test_what_is_run_is_out_of_reach_of_the_terminals_ctrl_c() -> None:
    done = shell.run([sys.executable, "-c", "import os; print(os.getpgrp() == os.getpid())"])
    assert done.out == "True\n"


def test_many_items_are_worked_on_in_order_however_many() -> None:
    few, many = (
        [str(number) for number in range(10)],
        [str(number) for number in range(shell.WORTH_PROCESSES + 7)],
    )
    assert shell.map_many(int, few) == list(range(10))
    assert shell.map_many(int, many) == list(range(shell.WORTH_PROCESSES + 7))


def test_what_fails_among_many_is_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        shell.map_many(int, [*["1"] * shell.WORTH_PROCESSES, "x"])


def test_a_stopped_program_ends_with_all_that_it_started(tmp_path: Path) -> None:
    stop, log = threading.Event(), tmp_path / "log"
    raised: list[shell.StoppedError] = []

    def run() -> None:
        try:
            shell.run_logged(["sh", "-c", "sleep 600 & echo $!; wait"], log, stop=stop)
        except shell.StoppedError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: log.exists() and log.read_text().strip())
    below = ProcessId.of(int(log.read_text()))
    stop.set()
    thread.join()
    assert len(raised) == 1
    wait_until(lambda: not below.is_alive())


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
