# SPDX-License-Identifier: Apache-2.0
"""Tests of what differs between a run and the published figure that it is compared with."""

from dataclasses import replace
from typing import Any

import pytest

from llmb.contract.rows import Row, Scales
from llmb.contract.window import Window
from llmb.judge.differences import differences_from_published
from llmb.measure.result import SUCCESS
from llmb.plan.published import Figure
from llmb_testing.job import SMALLEST_JOB
from llmb_testing.results import result_of

WINDOW = Window(11, 44)
FIGURE = Figure(
    release="25.05",
    source="a table",
    window=WINDOW,
    steps=50,
    workload="w",
    model_size="tiny",
    dtype="fp32",
    gpu_type="h100",
    scale=1,
    value=2.0,
)
RESULT = result_of({"experiment": "e", "path": "e.out", "status": SUCCESS, "window": WINDOW})
ROW = Row(gpu=("h100",), scales=Scales.parse([1]), dtype=("fp32",), mbs=1, tp=1)


def test_a_run_as_the_table_has_it_does_not_differ() -> None:
    assert list(differences_from_published(RESULT, SMALLEST_JOB, FIGURE, row=ROW)) == []


@pytest.mark.parametrize("name", ["tp", "pp", "cp", "vp", "ep", "mbs"])
def test_a_split_that_is_not_that_of_the_table_is_named(name: str) -> None:
    training = SMALLEST_JOB.training
    assert training is not None
    changes: dict[str, Any] = {name: 2}
    job = replace(SMALLEST_JOB, training=replace(training, **changes))
    (line,) = differences_from_published(RESULT, job, FIGURE, row=ROW)
    assert line.startswith(f"{name}: 2 here, ")
    assert list(differences_from_published(RESULT, job, FIGURE)) == []
