# SPDX-License-Identifier: Apache-2.0
"""Tests of windows, of the mean over them, and of the figures that follow, by the published worked examples."""

import math
import statistics

import pytest
from hypothesis import given, strategies as st

from llmb.errors import UsageError
from llmb.logs.samples import Samples, Step
from llmb.stats.measure import (
    LAST,
    Window,
    days_to_train,
    default_window,
    measure,
    mfu,
    model_tflops_per_gpu,
    parse_window,
    tokens_per_second,
)
from llmb.stats.metrics import STEP_TIME, TFLOPS_PER_GPU


def samples(times: list[float], tflops: float | None = 600.0, first: int = 0) -> Samples:
    steps = (Step(iteration=i, step_time=time, tflops=tflops) for i, time in enumerate(times, first))
    return Samples(steps=tuple(steps), last=first + len(times) - 1, attempts=1)


@pytest.mark.parametrize(
    ("steps", "window"), [(50, (11, 44)), (100, (22, 88)), (25, (6, 22)), (5, (1, 4)), (2, (0, 1)), (1, (0, 0))]
)
def test_the_default_window(steps: int, window: tuple[int, int]) -> None:
    assert default_window(steps) == window


@given(st.integers(1, 100_000))
def test_the_default_window_lies_within_the_run(steps: int) -> None:
    window = default_window(steps)
    assert 0 <= window.first <= window.last < steps


@pytest.mark.parametrize(("text", "window"), [("11-44", Window(11, 44)), (" 3 - 3 ", Window(3, 3)), ("last", LAST)])
def test_a_window_as_written(text: str, window: Window) -> None:
    assert parse_window(text) == window
    assert parse_window(str(window)) == window


@pytest.mark.parametrize("text", ["", "44-11", "-3", "11", "11-", "a-b", "1-2-3", "11..44", "1-9999999999999"])
def test_a_wrong_window(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_window(text)
    assert "11-44" in str(caught.value.hint)


def test_the_last_step_of_a_run() -> None:
    assert LAST.of(50) == (49, 49)
    assert Window(11, 44).of(50) == (11, 44)


def test_mean_and_population_deviation() -> None:
    result = measure(samples([9.0, 9.0, 1.0, 2.0, 6.0, 9.0]), Window(2, 4))
    assert result[STEP_TIME].mean == 3.0
    assert result[STEP_TIME].std == pytest.approx(math.sqrt(14 / 3))
    assert (result[STEP_TIME].n, result[STEP_TIME].unit, result[STEP_TIME].better) == (3, "s", "lower")
    assert (result[TFLOPS_PER_GPU].mean, result[TFLOPS_PER_GPU].std) == (600.0, 0.0)


@given(st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=60))
def test_it_agrees_with_statistics(times: list[float]) -> None:
    result = measure(samples(times), Window(0, len(times) - 1))
    assert result[STEP_TIME].mean == pytest.approx(statistics.fmean(times))
    assert result[STEP_TIME].std == pytest.approx(statistics.pstdev(times), abs=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0, 9e299, 1e-300])
def test_a_time_that_is_none_leaves_the_window_incomplete(bad: float) -> None:
    assert measure(samples([1.0, bad, 1.0]), Window(0, 2)) == {}
    assert STEP_TIME in measure(samples([1.0, bad, 1.0]), Window(2, 2))


def test_an_incomplete_window() -> None:
    whole = samples([1.0] * 50)
    gap = Samples(steps=tuple(step for step in whole.steps if step.iteration != 20), last=49, attempts=1)
    assert STEP_TIME in measure(whole, Window(11, 44))
    assert measure(gap, Window(11, 44)) == {}
    assert measure(samples([1.0] * 44), Window(11, 44)) == {}
    assert measure(samples([1.0] * 40, first=12), Window(11, 44)) == {}
    assert measure(Samples(), Window(0, 0)) == {}


@pytest.mark.parametrize("tflops", [None, math.nan, math.inf, 9e299])
def test_times_count_without_tflops(tflops: float | None) -> None:
    result = measure(samples([2.0, 2.0], tflops), Window(0, 1))
    assert set(result) == {STEP_TIME}
    assert (result[STEP_TIME].mean, result[STEP_TIME].std) == (2.0, 0.0)


def test_tflops_of_some_steps_are_none() -> None:
    half = (Step(iteration=0, step_time=2.0, tflops=600.0), Step(iteration=1, step_time=2.0))
    result = measure(Samples(steps=half, last=1, attempts=1), Window(0, 1))
    assert set(result) == {STEP_TIME}


def test_the_worked_examples_of_throughput() -> None:
    assert round(tokens_per_second(4096, 256, 2.693)) == 389371
    assert round(tokens_per_second(8192, 128, 12.39)) == 84631
    assert round(days_to_train(1e12, 389371), 1) == 29.7


@pytest.mark.parametrize(
    ("gbs", "flops", "step_time", "gpus", "peak", "percent"),
    [
        (256, 3.85e14, 2.693, 64, 989, 57.82),
        (768, 2.816e15, 15.892, 256, 1979, 26.86),
        (32, 1.01e16, 4.77, 128, 989, 53.52),
    ],
)
def test_the_worked_examples_of_mfu(
    gbs: int, flops: float, step_time: float, gpus: int, peak: float, percent: float
) -> None:
    fraction = mfu(model_tflops_per_gpu(gbs, flops, step_time, gpus), peak)
    assert round(100 * fraction, 2) == percent
