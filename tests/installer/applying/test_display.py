# SPDX-License-Identifier: Apache-2.0
"""Tests of the progress of steps: bytes and package, as lines of a plain log."""

import os
import re
import threading
from pathlib import Path

import pytest

from llmb.core.shell import StoppedError
from llmb_installer.applying.display import Display
from llmb_installer.execution.runner import Runner
from llmb_installer.step import BuildContext, Commands
from llmb_installer.steps.programs import ProgramsStep


@pytest.fixture
def step(tmp_path_factory: pytest.TempPathFactory) -> ProgramsStep:
    """Any step."""
    return ProgramsStep(install=tmp_path_factory.mktemp("install"), content="0" * 64)


def test_lines_of_a_plain_log(step: ProgramsStep, capfd: pytest.CaptureFixture[str]) -> None:
    with Display(threading.Event(), interval=0) as display, display.step(step) as progress:
        assert display.running == [step.key]
        progress.say("torch")
        progress.total(3_400_000_000)
        progress.advance(1_200_000_000)
        progress.advance(2_200_000_000)
    assert display.running == []
    lines = capfd.readouterr().err.splitlines()
    assert f"{step.key}: 1.2 GB of 3.4 GB, torch, after 0 s" in lines
    assert f"{step.key}: 3.4 GB of 3.4 GB, torch, still running, after 0 s" in lines
    assert re.search(r"done after \d+ s$", lines[-1])


def test_without_a_total_the_bytes_so_far(
    step: ProgramsStep, capfd: pytest.CaptureFixture[str]
) -> None:
    with Display(threading.Event(), interval=0) as display, display.step(step) as progress:
        progress.advance(5_000_000)
        progress.say("torch")
    assert f"{step.key}: 5.0 MB, torch, after 0 s" in capfd.readouterr().err.splitlines()


def test_a_program_that_prints_nothing_has_lines_too(
    step: ProgramsStep, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As pip does while it installs what it has fetched."""
    stop = threading.Event()
    with Display(stop, interval=0.2) as display, display.step(step) as progress:
        context = BuildContext(
            install=tmp_path,
            environ=os.environ,
            home=tmp_path,
            log=tmp_path / "log",
            progress=progress,
            runner=Runner(),
            stop=stop,
        )
        progress.say("installs 38 packages")
        Commands(context=context, environ=os.environ).run("pip", ["sleep", "1"])
    shown = [line for line in capfd.readouterr().err.splitlines() if "installs 38" in line]
    assert len(shown) > 1


def test_lines_are_rare(step: ProgramsStep, capfd: pytest.CaptureFixture[str]) -> None:
    with Display(threading.Event(), interval=3600) as display, display.step(step) as progress:
        for _ in range(100):
            progress.advance(1)
    assert len(capfd.readouterr().err.splitlines()) == 2, "begin and end alone"


def test_progress_ends_a_step_once_the_user_interrupted(step: ProgramsStep) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError), Display(stop) as display, display.step(step) as progress:
        progress.advance(1)
