# SPDX-License-Identifier: Apache-2.0
"""Tests of the progress of steps: bytes and package, as lines of a plain log."""

import re
import threading

import pytest

from llmb.core.shell import StoppedError
from llmb_installer.applying.display import Display
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
    assert display.running == []
    lines = capfd.readouterr().err.splitlines()
    assert f"{step.key}: 1.2 GB of 3.4 GB, torch" in lines
    assert re.search(r"done after \d+ s$", lines[-1])


def test_without_a_total_the_bytes_so_far(
    step: ProgramsStep, capfd: pytest.CaptureFixture[str]
) -> None:
    with Display(threading.Event(), interval=0) as display, display.step(step) as progress:
        progress.advance(5_000_000)
        progress.say("torch")
    assert f"{step.key}: 5.0 MB, torch" in capfd.readouterr().err.splitlines()


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
