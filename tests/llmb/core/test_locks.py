# SPDX-License-Identifier: Apache-2.0
"""Tests of the lock: one holder at a time, dead holders, other hosts, release."""

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.core import locks, shell
from llmb.core.process import ProcessId
from llmb.errors import describe

# Takes the lock again and again; half of the time it dies with it. Two holders at once meet at the
# file `inside`.
CONTENDER = """
import os, sys, time
from pathlib import Path
from llmb.core import locks
folder, name = Path(sys.argv[1]), sys.argv[2]
for turn in range(12):
    if os.fork() == 0:
        with locks.hold(folder, "x", wait=200):
            descriptor = os.open(folder / "inside", os.O_CREAT | os.O_EXCL)
            with open(folder / "turns", "a") as turns: turns.write(f"{name}{turn}\\n")
            time.sleep(0.01)
            os.unlink(folder / "inside")
            if turn % 2: os._exit(0)
        os._exit(0)
    if os.wait()[1]: sys.exit("two holders")
"""


def write_owner(folder: Path, owner: ProcessId, *, age: float = 0.0, generation: int = 1) -> None:
    path = folder / f"x.lock.{generation}"
    path.write_text(json.dumps(dataclasses.asdict(owner)))
    os.utime(path, (time.time() - age, time.time() - age))


def ended() -> ProcessId:
    return dataclasses.replace(ProcessId.current(), start=ProcessId.current().start - 100)


def test_the_holder_is_known_and_gone_after_release(tmp_path: Path) -> None:
    assert locks.holder(tmp_path, "x") is None
    with locks.hold(tmp_path, "x"):
        assert locks.holder(tmp_path, "x") == ProcessId.current()
    assert locks.holder(tmp_path, "x") is None
    with locks.hold(tmp_path, "x"):
        assert len(list(tmp_path.iterdir())) == 1


def test_a_held_lock_names_its_holder(tmp_path: Path) -> None:
    holders: list[ProcessId] = []
    with locks.hold(tmp_path, "x"), locks.hold(tmp_path, "y"):
        with (
            pytest.raises(locks.LockHeldError) as caught,
            locks.hold(tmp_path, "x", wait=0.1, on_wait=holders.append),
        ):
            pass
        assert str(os.getpid()) in caught.value.message
        assert str(tmp_path / "x.lock.1") in caught.value.message
        assert (caught.value.code, caught.value.value) == ("lock-held", tmp_path / "x.lock.1")
        assert f"ps -fp {os.getpid()}" in (caught.value.hint or "")
    assert holders == [ProcessId.current()]


def test_the_hint_for_a_lock_of_another_host_removes_it_if_its_holder_died(
    tmp_path: Path, wording: Callable[..., None]
) -> None:
    write_owner(tmp_path, dataclasses.replace(ended(), host="node7", pid=7), generation=4)
    with pytest.raises(locks.LockHeldError) as caught:
        locks.hold(tmp_path, "x").__enter__()
    assert (caught.value.code, caught.value.value) == ("lock-held", tmp_path / "x.lock.4")
    assert (caught.value.hint or "").endswith(f"rm {tmp_path / 'x.lock.4'}")
    spaced = tmp_path / "with space"
    spaced.mkdir()
    write_owner(spaced, dataclasses.replace(ended(), host="node7", pid=7), generation=4)
    with pytest.raises(locks.LockHeldError) as other:
        locks.hold(spaced, "x").__enter__()
    assert (other.value.hint or "").endswith(f"rm '{spaced / 'x.lock.4'}'")
    wording("llmb-run", describe(caught.value))
    (tmp_path / "x.lock.4").unlink()
    with locks.hold(tmp_path, "x"):
        pass
    (tmp_path / "x.lock.9").touch()
    with pytest.raises(locks.LockHeldError) as caught:
        locks.hold(tmp_path, "x").__enter__()
    assert caught.value.value == tmp_path / "x.lock.9"
    wording("llmb-run", describe(caught.value))


def test_waiting_takes_few_looks_and_asks_the_clock_of_the_folder_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_owner(tmp_path, dataclasses.replace(ended(), host="node7"))
    pauses: list[float] = []
    clocks: list[Path] = []
    touch = Path.touch

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            (tmp_path / "x.lock.1").write_text("released")

    def count(path: Path, **how: bool) -> None:
        clocks.append(path)
        touch(path, **how)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(Path, "touch", count)
    with locks.hold(tmp_path, "x", wait=600):
        assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
        assert len(clocks) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x.lock.2"]


def test_an_error_inside_releases(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locks.hold(tmp_path, "x"):
        raise ZeroDivisionError
    assert locks.holder(tmp_path, "x") is None


def test_a_dead_holder_is_replaced_at_once(tmp_path: Path) -> None:
    write_owner(tmp_path, ended())
    with locks.hold(tmp_path, "x"):
        assert [path.name for path in tmp_path.iterdir()] == ["x.lock.2"]


def test_a_holder_of_another_boot_is_dead(tmp_path: Path) -> None:
    write_owner(tmp_path, dataclasses.replace(ProcessId.current(), boot="before"))
    assert locks.holder(tmp_path, "x") is None


@pytest.mark.parametrize(("age", "held"), [(0.0, True), (locks.STALE_AFTER + 1, False)])
def test_a_holder_elsewhere_is_known_by_its_heartbeat(
    tmp_path: Path, age: float, held: bool
) -> None:
    elsewhere = dataclasses.replace(ended(), host="node7")
    write_owner(tmp_path, elsewhere, age=age)
    assert locks.holder(tmp_path, "x") == (elsewhere if held else None)


@pytest.mark.parametrize(("age", "held"), [(0.0, True), (locks.HEARTBEAT + 1, False)])
def test_a_lock_without_a_name_yet_is_held_for_a_while(
    tmp_path: Path, age: float, held: bool
) -> None:
    path = tmp_path / "x.lock.1"
    path.touch()
    os.utime(path, (time.time() - age, time.time() - age))
    assert (locks.holder(tmp_path, "x") is not None) == held


def test_a_generation_that_has_come_and_gone_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that looked long ago creates an old generation, and must see the newer holder."""
    write_owner(tmp_path, ended(), generation=1)
    look, newest = locks._generations, ProcessId.current()

    def look_and_be_slow(folder: Path, name: str) -> list[tuple[int, Path]]:
        found = look(folder, name)
        if not (folder / "x.lock.3").exists():
            (folder / "x.lock.1").unlink()
            write_owner(folder, newest, generation=3)
        return found

    monkeypatch.setattr(locks, "_generations", look_and_be_slow)
    with pytest.raises(locks.LockHeldError), locks.hold(tmp_path, "x"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["x.lock.3"]


def test_the_newest_generation_decides_where_older_ones_cannot_be_removed(tmp_path: Path) -> None:
    """As those of another user, in a folder with the sticky bit."""
    for generation in (1, 2):
        (tmp_path / f"x.lock.{generation}").write_text("released")
    with locks.hold(tmp_path, "x"):
        assert [path.name for path in tmp_path.iterdir()] == ["x.lock.3"]
    write_owner(tmp_path, ended(), generation=1)
    write_owner(tmp_path, ProcessId.current(), generation=4)
    with pytest.raises(locks.LockHeldError), locks.hold(tmp_path, "x"):
        pass


def test_a_folder_removed_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with locks.hold(folder, "x"):
        next(folder.iterdir()).unlink()
        folder.rmdir()
    assert not folder.exists()


def test_two_processes_with_dying_holders_are_never_both_inside(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", CONTENDER, str(tmp_path)]
    started = [
        shell.spawn([*argv, name], env=dict(os.environ), cwd=tmp_path, log=tmp_path / f"{name}.log")
        for name in "abc"
    ]
    codes = [process.wait() for process in started]
    assert codes == [0, 0, 0], [(tmp_path / f"{name}.log").read_text() for name in "abc"]
    assert sorted((tmp_path / "turns").read_text().split()) == sorted(
        f"{name}{i}" for name in "abc" for i in range(12)
    )


def test_heartbeats_rest_only_without_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks.rest()
    alone = threading.active_count()
    monkeypatch.setattr(locks, "HEARTBEAT", 0.01)
    for _ in range(2):  # it begins again
        with locks.hold(tmp_path, "name"):
            locks.rest()
            (lock,) = tmp_path.iterdir()
            os.utime(lock, (0, 0))
            while lock.stat().st_mtime == 0:
                time.sleep(0.01)
        locks.rest()
        assert threading.active_count() == alone
        lock.unlink()
