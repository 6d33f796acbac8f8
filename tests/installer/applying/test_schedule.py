# SPDX-License-Identifier: Apache-2.0
"""Tests of the order of steps: several at a time, each after those it needs, a failure only for
what needs it.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from llmb.errors import LlmbError
from llmb_installer.applying.apply import StepResults, run_steps
from llmb_installer.step import BuildContext, Facts, InstallStep, StepCost


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain(InstallStep):
    """A step with nothing but a name."""

    kind: ClassVar[str] = "plain"
    of: str

    @property
    def name(self) -> str:
        return self.of

    @property
    def title(self) -> str:
        return self.of

    @property
    def path(self) -> Path | None:
        return None

    def check(self, context: BuildContext) -> StepCost:
        return StepCost()

    def build(self, context: BuildContext) -> Facts:
        return {}


def step(name: str, *after: str) -> Plain:
    return Plain(of=name, after=tuple(f"plain {other}" for other in after))


def do(
    steps: Sequence[InstallStep],
    work: Callable[[InstallStep], Facts],
    done: Sequence[str] = (),
    workers: int = 4,
) -> tuple[StepResults, list[str]]:
    noted: list[str] = []
    results = run_steps(
        steps,
        done,
        work,
        lambda step, facts: noted.append(step.name),
        workers=workers,
        stop=threading.Event(),
    )
    return results, noted


def test_each_after_what_it_needs() -> None:
    begun: list[str] = []

    def work(one: InstallStep) -> Facts:
        begun.append(one.name)
        return {"of": one.name}

    results, noted = do(
        [step("c", "b"), step("b", "a"), step("a"), step("d", "there")], work, ["plain there"]
    )
    assert sorted(noted) == ["a", "b", "c", "d"]
    assert [name for name in begun if name != "d"] == ["a", "b", "c"]
    assert results.built["plain c"] == {"of": "c"}


def test_several_at_a_time_and_no_more() -> None:
    """Two run at once, or the barrier breaks; never three."""
    meeting, lock, now, most = threading.Barrier(2, timeout=60), threading.Lock(), 0, 0

    def work(one: InstallStep) -> Facts:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        meeting.wait()
        with lock:
            now -= 1
        return {}

    do([step(str(number)) for number in range(6)], work, workers=2)
    assert most == 2


def test_a_failure_stops_what_needs_it() -> None:
    def work(one: InstallStep) -> Facts:
        if one.name == "bad":
            raise LlmbError("it broke")
        return {}

    results, noted = do(
        [step("last", "next"), step("next", "bad"), step("bad"), step("good")], work
    )
    assert noted == ["good"]
    assert [*results.failed] == ["plain bad"]
    assert results.skipped == {"plain next": "plain bad", "plain last": "plain bad"}


def test_steps_that_wait_for_each_other() -> None:
    results, noted = do([step("a", "b"), step("b", "a"), step("c")], lambda one: {})
    assert noted == ["c"]
    assert {*results.failed} == {"plain a", "plain b"}


def test_what_cannot_be_recorded_has_failed() -> None:
    def note(one: InstallStep, facts: Facts) -> None:
        raise LlmbError("the disk is full", code="disk-full")

    results = run_steps([step("a")], (), lambda one: {}, note, workers=1, stop=threading.Event())
    assert results.built == {}
    assert results.failed["plain a"].code == "disk-full"


def test_a_bug_is_raised_when_the_others_have_ended() -> None:
    stop = threading.Event()

    def work(one: InstallStep) -> Facts:
        if one.name == "bug":
            raise ZeroDivisionError
        assert stop.wait(60), "stop is set for the others"
        return {}

    with pytest.raises(ZeroDivisionError):
        run_steps(
            [step("bug"), step("other"), step("later", "other")],
            (),
            work,
            lambda *_: None,
            workers=2,
            stop=stop,
        )


def test_an_interrupt_waits_for_running_steps() -> None:
    stop, ended = threading.Event(), []

    def work(one: InstallStep) -> Facts:
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(60)
        ended.append(one.name)
        raise LlmbError("stopped")

    with pytest.raises(KeyboardInterrupt):
        run_steps([step("a"), step("b", "a")], (), work, lambda *_: None, workers=2, stop=stop)
    assert ended == ["a"]


HANGS = """
import threading, time
from llmb_installer.applying.apply import run_steps
from llmb_installer.step import InstallStep
class Hanging(InstallStep):
    kind, name, title, path = "plain", "a", "a", None
    def check(self, context): ...
    def build(self, context): ...
def work(step):
    print("ready", flush=True)
    time.sleep(600)
stopping = lambda: print("stopping", flush=True)
run_steps([Hanging()], (), work, lambda *_: None, workers=2, stop=threading.Event(), on_stop=stopping)
"""


def test_a_second_interrupt_ends_at_once() -> None:
    """Also while a step hangs that does not look at ``stop``."""
    process = subprocess.Popen(
        [sys.executable, "-c", HANGS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    for line in ("ready\n", "stopping\n"):
        assert process.stdout.readline() == line
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)  # the step would take 600 s
    assert err.rstrip().endswith("KeyboardInterrupt")
