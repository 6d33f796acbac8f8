# SPDX-License-Identifier: Apache-2.0
"""Tests that a log which NeMo's own trainer wrote is read right: nemo/README.md says how it came
about.
"""

from pathlib import Path

import pytest

from llmb.contract.samples import CheckpointEvent, Environment, Step
from llmb.measure.log_reader import read_log

LOGS = Path(__file__).parent / "nemo"
TIMES = (0.2013, 0.1248, 0.1863, 0.1822, 0.1104)
TFLOPS = (0.06332, 0.1022, 0.0684, 0.06995, 0.1154)
LOSSES = (7.071, 7.073, 7.069, 7.036, 7.062)


def test_five_steps_and_the_checkpoint_behind_them() -> None:
    samples = read_log(LOGS / "save.log")
    assert samples.steps == tuple(
        Step(iteration=number, step_time=seconds, tflops=tflops, loss=loss)
        for number, (seconds, tflops, loss) in enumerate(zip(TIMES, TFLOPS, LOSSES, strict=True))
    )
    assert (samples.framework, samples.last, samples.attempts, samples.ended) == (
        "NeMo 2",
        4,
        1,
        True,
    )
    assert (samples.gbs, samples.peak_memory, samples.environment) == (
        4,
        None,
        Environment(world_size=1),
    )
    # NeMo counts the iteration from 0 here.
    assert samples.checkpoints == (
        CheckpointEvent(
            kind="save", ranks=(0,), max_seconds=0.089, rank0_seconds=0.089, iteration=4
        ),
    )


def test_a_checkpoint_and_the_step_behind_it() -> None:
    samples = read_log(LOGS / "load.log")
    assert (len(samples.steps), samples.last, samples.attempts, samples.ended) == (1, 0, 1, True)
    (load,) = samples.checkpoints
    assert (load.kind, load.ranks, load.iteration) == ("load", (0,), None)
    assert load.rank0_seconds == load.max_seconds == 0.084


def test_nemos_tflops_and_step_time_make_the_same_flops_in_every_step() -> None:
    samples = read_log(LOGS / "save.log")
    products = [step.tflops * step.step_time for step in samples.steps if step.tflops is not None]
    assert products == pytest.approx([products[0]] * len(samples.steps), rel=2e-3)
