# SPDX-License-Identifier: Apache-2.0
"""Tests of the identity of processes."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from llmb.core import process, shell
from llmb.core.process import ProcessId


@pytest.fixture(params=[True, False], ids=["proc", "no-proc"])
def proc(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With and without the /proc of Linux."""
    monkeypatch.setattr(process, "_has_proc", lambda: request.param)
    return bool(request.param)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[shell.Popen[bytes]]:
    """A process that runs."""
    started = shell.spawn(
        ["sleep", "600"], env=dict(os.environ), cwd=tmp_path, log=tmp_path / "log"
    )
    yield started
    started.kill()
    started.wait()


@pytest.mark.usefixtures("proc")
def test_a_process_is_alive_until_it_is_a_zombie(sleeper: shell.Popen[bytes]) -> None:
    identity = ProcessId.of(sleeper.pid)
    assert identity.is_here
    assert identity.is_alive()
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    assert not identity.is_alive()
    sleeper.wait()
    assert not identity.is_alive()
    with pytest.raises(ProcessLookupError):
        ProcessId.of(sleeper.pid)


@pytest.mark.usefixtures("proc")
@pytest.mark.parametrize("changed", [{"start": -100.0}, {"boot": "another"}])
def test_another_process_of_the_same_number_is_not_it(changed: dict[str, float | str]) -> None:
    this = ProcessId.of(os.getpid())
    other = dataclasses.replace(this, **changed)  # type: ignore[arg-type]
    assert this.is_alive()
    assert not other.is_alive()


@pytest.mark.usefixtures("proc")
def test_a_later_process_has_a_later_start(sleeper: shell.Popen[bytes]) -> None:
    started = [ProcessId.of(pid).start for pid in (os.getppid(), os.getpid(), sleeper.pid)]
    assert sorted(started) == started
    assert started[1] < started[2]


def test_it_comes_back_from_plain_data() -> None:
    me = ProcessId.current()
    assert ProcessId.from_data(dataclasses.asdict(me)) == me


def test_setting_the_clock_changes_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/stat").exists():  # there, start times are by the clock
        return
    before = ProcessId.current()
    monkeypatch.setattr(psutil, "boot_time", lambda: 0.0)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: 0.0)
    assert ProcessId.current() == before
    assert before.is_alive()


def test_the_name_of_a_program_may_hold_anything(tmp_path: Path) -> None:
    script = tmp_path / "a) R 1 (b"
    script.symlink_to("/bin/sleep")
    started = shell.spawn([str(script), "600"], env={}, cwd=tmp_path, log=tmp_path / "log")
    assert ProcessId.of(started.pid).is_alive()
    started.kill()
    started.wait()


def test_a_program_is_at_work_on_what_its_arguments_end_with(sleeper: shell.Popen[bytes]) -> None:
    assert psutil.Process(sleeper.pid).cmdline() == ["sleep", "600"]
    assert process.is_at_work("sleep", ("/x/run.sh", "600"))
    assert not process.is_at_work("sleep", ("/x/run.sh",))
    assert not process.is_at_work("sbatch-of-no-cluster", ("600",))


def test_marked_processes_are_killed_and_no_others(tmp_path: Path) -> None:
    marks = [f"{tmp_path}/{mark}" for mark in ("mine", "mine", "others")]  # only of this test
    started = [
        shell.spawn(
            ["sleep", "600"], env={"LLMB_TEST_MARK": mark}, cwd=tmp_path, log=tmp_path / "log"
        )
        for mark in marks
    ]
    try:
        assert process.kill_marked("LLMB_TEST_MARK", marks[0]) == 2
        for program in started[:2]:
            program.wait(60)
        assert started[2].poll() is None
        assert process.kill_marked("LLMB_TEST_MARK", marks[2]) == 1
    finally:
        for program in started:
            program.kill()
            program.wait()


class Starting:
    """A process that reads as Linux shows it while a program is loaded, for some looks."""

    def __init__(self, looks: int, *, words: list[str], program: str) -> None:
        self.looks, self.words, self.program = looks, words, program

    def environ(self) -> dict[str, str]:
        self.looks -= 1
        return {} if self.looks >= 0 else {"A": "1"}

    def cmdline(self) -> list[str]:
        return self.words

    def exe(self) -> str:
        return self.program


@pytest.mark.parametrize(
    ("starting", "environment"),
    [
        (Starting(0, words=["sh"], program="/bin/sh"), {"A": "1"}),
        (Starting(5, words=[], program="/bin/sh"), {"A": "1"}),
        (Starting(5, words=["env", "-i"], program="/bin/env"), {}),
        (Starting(5, words=[], program=""), {}),
    ],
    ids=["loaded", "being loaded", "without variables", "of the kernel"],
)
def test_the_environment_of_a_process_that_is_being_loaded_is_awaited(
    starting: Starting, environment: dict[str, str]
) -> None:
    assert process._environment_of(starting) == environment  # type: ignore[arg-type]
