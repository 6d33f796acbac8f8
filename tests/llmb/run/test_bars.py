# SPDX-License-Identifier: Apache-2.0
"""Tests of what `jobs wait` draws on a terminal: each run with its bar, its steps and its time."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from llmb.cli.progress import _Bars, _progress, labels
from llmb.contract.record import RunRecord
from llmb.contract.state import RUNNING, JobState

Submitted = Callable[..., list[RunRecord]]
NAME = "pretrain_nemotron4_tiny_bf16_gpus1_tp1_pp1_cp1_vpNone_mbs{}_gbs4_steps8"
STEP = (
    "Training epoch 0, iteration {i}/49 | train_step_timing in s: 1.5 | reduced_train_loss: 2.5\n"
)


def named(runs: Sequence[RunRecord], *names: str) -> list[RunRecord]:
    return [
        replace(run, job=replace(run.job, experiment_name=name))
        for run, name in zip(runs, names, strict=True)
    ]


def drawn(runs: Sequence[RunRecord], width: int) -> list[str]:
    """The lines of a terminal of that width while all ``runs`` are at work."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    bars = _progress(console)
    _Bars(len(runs), bars)(runs, {run.id: JobState(state=RUNNING) for run in runs})
    with console.capture() as shown:
        console.print(bars.get_renderable())
    return [line.rstrip() for line in shown.get().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_each_run_has_its_bar_steps_and_time(width: int, submitted: Submitted) -> None:
    """Repeats too, and one that has not begun."""
    runs = named(submitted(3), NAME.format(2), NAME.format(2), NAME.format(4))
    for run in runs[:2]:
        run.work.mkdir(parents=True, exist_ok=True)
        run.log.write_text("".join(STEP.format(i=step) for step in range(12)))
    total, *lines = drawn(runs, width)
    assert total.startswith("jobs")
    assert len(lines) == len(set(lines)) == 3
    for line, run in zip(lines, runs, strict=True):
        assert len(line) <= width
        assert line.startswith(f"{run.id} ")
        assert re.search(r"\s[━╸╺\s]{10,20}\s+\d+/\d+(\s+[a-z]+)?\s+0:00:00$", line), line
        assert "…" not in line
        assert width < 80 or "nemotron4_tiny_bf16_gpus1" in line
    assert all("━" in line and "12/50" in line for line in lines[:2])
    if width >= 80:
        assert ["mbs2" in line for line in lines] == [True, True, False]


def test_a_narrow_terminal_has_space_for_the_ids(submitted: Submitted) -> None:
    runs = named(submitted(2), NAME.format(2), NAME.format(2))
    assert labels(runs, 30) == {run.id: run.id for run in runs}
    assert all(name.startswith(f"{id_} nemotron4") for id_, name in labels(runs, 80).items())
    assert labels(runs, 200) == {run.id: f"{run.id} {NAME.format(2)}" for run in runs}
