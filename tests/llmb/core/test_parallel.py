# SPDX-License-Identifier: Apache-2.0
"""Forks work on all tasks, keep quiet, and end with the process that made them."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from llmb.core import locks, parallel
from llmb.core.parallel import try_in_forks


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "processors", lambda: 4)
    locks.rest()  # which another test may have left


def test_each_task_is_done_once_by_several_processes(tmp_path: Path) -> None:
    def work(number: int) -> None:
        with (tmp_path / str(number)).open("a") as file:
            file.write(f"{os.getpid()}\n")

    try_in_forks(work, range(20))
    texts = [(tmp_path / str(number)).read_text() for number in range(20)]
    assert [len(text.splitlines()) for text in texts] == [1] * 20
    assert len(set(texts)) == 4
    assert f"{os.getpid()}\n" not in texts


def test_output_and_exceptions_stay_in_the_fork(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def work(number: int) -> None:
        print("answer", flush=True)
        print("warning", file=sys.stderr, flush=True)
        if number == 0:
            raise ValueError
        (tmp_path / str(number)).touch()

    try_in_forks(work, range(6))
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "3", "4", "5"]


def test_a_killed_fork_costs_its_own_tasks(tmp_path: Path) -> None:
    def work(number: int) -> None:
        if number == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        (tmp_path / str(number)).touch()

    try_in_forks(work, range(6))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "3", "5"]


def test_no_forks_with_few_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "processors", lambda: 3)
    try_in_forks(lambda number: (tmp_path / str(number)).touch(), range(6))
    assert list(tmp_path.iterdir()) == []


def test_no_forks_beside_other_threads(tmp_path: Path) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        try_in_forks(lambda number: (tmp_path / str(number)).touch(), range(6))
    finally:
        ended.set()
        thread.join()
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
import sys, time
from pathlib import Path
from llmb.core import locks, parallel
parallel.processors = lambda: 4

def work(folder):
    try:
        Path(folder, "begun").touch()
        time.sleep(600)
    except KeyboardInterrupt:
        Path(folder, "ended").touch()
        raise

try:
    parallel.try_in_forks(work, sys.argv[1:])
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_ends_the_forks_first(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    argv = [sys.executable, "-c", INTERRUPTED, *map(str, folders)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        while not all((folder / "begun").exists() for folder in folders):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)  # to it alone, as `kill` does
        assert process.communicate()[0] == "interrupted\n"
    assert all((folder / "ended").exists() for folder in folders)
