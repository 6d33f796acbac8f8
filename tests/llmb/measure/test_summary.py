# SPDX-License-Identifier: Apache-2.0
"""Tests of what the steps of a window say beyond their mean."""

import math
import statistics

import pytest
from hypothesis import given, strategies as st

from llmb.contract.samples import CheckpointEvent, Environment, Samples, Step
from llmb.contract.window import Window
from llmb.measure.facts import LOSS_NAN, CheckpointTime, facts_of, invalid_because
from llmb.measure.statistics import Statistics, quantile, summarize

TIMES = st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=80)


def samples(
    times: list[float], *, tflops: float | None = None, loss: float | None = 2.5
) -> Samples:
    steps = (
        Step(iteration=i, step_time=time, tflops=tflops, loss=loss) for i, time in enumerate(times)
    )
    return Samples(steps=tuple(steps), last=len(times) - 1, attempts=1)


def summary(times: list[float], tflops: float | None = None) -> Statistics:
    found = summarize(samples(times), Window(0, len(times) - 1), tflops=tflops)
    assert found is not None
    return found


def test_a_steady_run() -> None:
    found = summary([2.5] * 34)
    assert (found.count, found.median, found.p95, found.least, found.most) == (
        34,
        2.5,
        2.5,
        2.5,
        2.5,
    )
    assert (found.interval, found.outliers, found.drift) == ((2.5, 2.5), (), 0.0)


def test_median_and_quantiles() -> None:
    found = summary([4.0, 1.0, 3.0, 2.0])
    assert (found.median, found.least, found.most) == (2.5, 1.0, 4.0)
    assert found.p95 == pytest.approx(3.85)
    assert [quantile([1.0, 2.0, 4.0], part) for part in (0, 0.25, 0.5, 1)] == [1.0, 1.5, 2.0, 4.0]


@given(TIMES)
def test_it_agrees_with_statistics(times: list[float]) -> None:
    found = summary(times)
    assert found.median == pytest.approx(statistics.median(times))
    if len(times) > 1:
        assert found.p95 == pytest.approx(statistics.quantiles(times, n=20, method="inclusive")[18])
    assert found.least <= found.median <= found.p95 <= found.most
    assert math.isfinite(found.drift)
    if len(times) == 1:
        assert (found.interval, found.deviation) == (None, None)
        return
    assert found.interval is not None
    low, high = found.interval
    assert low <= statistics.fmean(times) + 1e-9
    assert high >= statistics.fmean(times) - 1e-9


def test_the_interval_of_the_mean() -> None:
    interval = summary([1.0, 2.0, 3.0, 4.0, 5.0]).interval
    # Student's t of 4 degrees of freedom, 2.776, times the sample deviation by the root of 5.
    assert interval == pytest.approx(
        (3 - 2.776 * math.sqrt(2.5 / 5), 3 + 2.776 * math.sqrt(2.5 / 5)), abs=1e-3
    )


def test_outliers_are_named_by_their_iteration() -> None:
    times = [2.5 + 0.001 * (i % 3) for i in range(34)]
    times[7], times[20] = 3.1, 2.2
    found = summarize(samples(times), Window(5, 33))
    assert found is not None
    assert (found.count, found.outliers) == (29, (7, 20))
    assert abs(found.drift) < 1e-3


def test_rounding_makes_no_outliers() -> None:
    assert summary([2.5] * 20 + [2.51] * 3).outliers == ()


def test_a_run_that_becomes_slower() -> None:
    assert summary([2.0 + 0.01 * i for i in range(21)]).drift == pytest.approx(0.2 / 2.1)
    assert summary([2.2 - 0.01 * i for i in range(21)]).drift == pytest.approx(-0.2 / 2.1)
    assert summary([2.0, 3.0]).drift == 0.0
    assert summary([2.0, 2.5, 3.0]).drift == pytest.approx(1.0 / 2.5)


def test_an_empty_window() -> None:
    assert summarize(samples([2.0] * 5), Window(7, 9)) is None
    assert summarize(Samples(), Window(0, 0)) is None
    assert summarize(samples([math.nan, math.inf]), Window(0, 1)) is None


def test_the_frameworks_tflops_by_our_formula() -> None:
    seen = samples([2.0, 4.0], tflops=600.0)
    found = summarize(seen, Window(0, 1), tflops=300.0)
    assert found is not None
    assert found.tflops_by_formula == pytest.approx(2.0)
    for other, tflops in (
        (samples([2.0, 4.0]), 300.0),
        (seen, None),
        (samples([2.0], tflops=math.nan), 300.0),
    ):
        without = summarize(other, Window(0, 1), tflops=tflops)
        assert without is not None
        assert without.tflops_by_formula is None


def test_the_facts_of_a_log() -> None:
    found = facts_of(
        Samples(
            framework="NeMo 2",
            peak_memory=7e10,
            environment=Environment(
                networks=("IB",), hosts=("a", "b"), nccl_version="2.26.3+cuda12.9", world_size=16
            ),
            checkpoints=(
                CheckpointEvent(
                    kind="save", ranks=(0, 1), max_seconds=4.5, rank0_seconds=4.4, iteration=50
                ),
            ),
        )
    )
    assert (found.framework, found.nccl_version, found.networks) == (
        "NeMo 2",
        "2.26.3+cuda12.9",
        ("IB",),
    )
    assert (found.nodes, found.peak_memory_bytes) == (2, 7e10)
    assert found.checkpoints == (
        CheckpointTime(kind="save", iteration=50, ranks=2, rank0_seconds=4.4, max_seconds=4.5),
    )


@pytest.mark.parametrize(("loss", "outside"), [(math.nan, True), (math.inf, False)])
def test_a_loss_that_is_not_finite(loss: float, outside: bool) -> None:
    """What is not a number stays so in the weights; one that is too large may be of the first step
    alone.
    """
    early = Samples(
        steps=(Step(iteration=0, step_time=2.0, loss=loss), *samples([2.0] * 9).steps[1:])
    )
    assert invalid_because(early, Window(0, 8)) == (LOSS_NAN,)
    assert bool(invalid_because(early, Window(1, 8))) is outside
    assert invalid_because(samples([2.0], loss=None), Window(0, 0)) == ()
    late = Samples(steps=(*samples([2.0] * 9).steps, Step(iteration=9, step_time=2.0, loss=loss)))
    assert invalid_because(late, Window(1, 8)) == (LOSS_NAN,)
    assert bool(invalid_because(late, None)) is outside


@pytest.mark.parametrize(
    ("network", "seen", "nodes", "valid"),
    [
        ("Socket", 1, None, True),
        ("Socket", 2, None, False),
        ("Socket", 0, 2, False),
        ("IB", 2, 2, True),
    ],
)
def test_tcp_counts_between_nodes_alone(
    network: str, seen: int, nodes: int | None, valid: bool
) -> None:
    hosts = tuple(f"node{number}" for number in range(seen))
    found = Samples(environment=Environment(networks=(network,), hosts=hosts))
    assert (invalid_because(found, None, nodes) == ()) is valid
