# SPDX-License-Identifier: Apache-2.0
"""Forks help with tasks, keep quiet, and end with the process that made them."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from llmb.core import locks, parallel
from llmb.core.parallel import helped_by_forks


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "processors", lambda: 4)
    locks.rest()  # which another test may have left


def test_each_task_is_done_once_by_several_processes(tmp_path: Path) -> None:
    def work(number: int) -> None:
        with (tmp_path / str(number)).open("a") as file:
            file.write(f"{os.getpid()}\n")

    with helped_by_forks(work, range(20)):
        pass
    texts = [(tmp_path / str(number)).read_text() for number in range(20)]
    assert [len(text.splitlines()) for text in texts] == [1] * 20
    assert len(set(texts)) == 3
    assert f"{os.getpid()}\n" not in texts


@pytest.mark.parametrize("processors", [2, 4])
def test_forks_begin_at_the_end_and_omit_what_the_caller_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processors: int
) -> None:
    monkeypatch.setattr(parallel, "processors", lambda: processors)
    may_go_on = tmp_path / "go"

    def work(number: int) -> None:
        (tmp_path / str(number)).touch()
        while not may_go_on.exists():
            time.sleep(0.01)

    with helped_by_forks(work, range(20)) as begin:
        while not (tmp_path / "19").exists():
            time.sleep(0.01)
        for number in range(10):
            begin(number)
        may_go_on.touch()
    done = sorted(int(path.name) for path in tmp_path.iterdir() if path != may_go_on)
    assert done == list(range(10, 20))


def test_output_and_exceptions_stay_in_the_fork(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def work(number: int) -> None:
        print("answer", flush=True)
        print("warning", file=sys.stderr, flush=True)
        if number == 0:
            raise ValueError
        (tmp_path / str(number)).touch()

    with helped_by_forks(work, range(6)):
        pass
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "3", "4", "5"]


def test_a_killed_fork_costs_its_own_tasks(tmp_path: Path) -> None:
    def work(number: int) -> None:
        if number == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        (tmp_path / str(number)).touch()

    with helped_by_forks(work, range(6)):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "3", "4"]


def test_no_forks_with_one_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "processors", lambda: 1)
    with helped_by_forks(lambda number: (tmp_path / str(number)).touch(), range(6)) as begin:
        begin(0)
    assert list(tmp_path.iterdir()) == []


def test_no_forks_beside_other_threads(tmp_path: Path) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        with helped_by_forks(lambda number: (tmp_path / str(number)).touch(), range(6)):
            pass
    finally:
        ended.set()
        thread.join()
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
import sys, time
from pathlib import Path
from llmb.core import locks, parallel
parallel.processors = lambda: 3

def work(folder):
    try:
        Path(folder, "begun").touch()
        time.sleep(600)
    except KeyboardInterrupt:
        Path(folder, "ended").touch()
        raise

try:
    with parallel.helped_by_forks(work, sys.argv[1:]):
        pass
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
