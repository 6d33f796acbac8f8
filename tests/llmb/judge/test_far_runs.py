# SPDX-License-Identifier: Apache-2.0
"""Tests of finding runs that are far from their repeats."""

from dataclasses import replace

import pytest

from llmb.contract.metrics import Measured
from llmb.judge.far_runs import far_runs, in_words
from llmb.judge.judge import pools_of, without_session
from llmb.measure.result import SUCCESS, Identity, Metrics, Result


def results(values: list[float], better: str = "lower", experiment: str = "a") -> list[Result]:
    return [
        Result(
            identity=Identity(experiment=experiment, path=f"{number}", run=f"r{number}"),
            status=SUCCESS,
            metrics=Metrics(
                measured={"m": Measured(mean=value, std=0.0, n=9, unit="s", better=better)},  # type: ignore[arg-type]
                headline="m",
            ),
        )
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("values", "far"),
    [
        ([1.0, 1.01, 2.0, 0.99], {"r2": 0.5}),
        ([1.0, 1.01, 0.5], {"r2": 2.0}),
        ([1.0, 1.0, 1.049], {}),  # steady runs: 5 % at least
        ([1.0, 1.2, 0.8, 1.3, 0.7], {}),  # all differ, none is far
        ([1.0, 2.0], {}),  # nobody knows which of two is far
        ([0.0, 1.0, 1.0, 3.0], {"r3": 1 / 3}),  # a value of 0 has no ratio
    ],
)
def test_a_run_is_far_by_deviations_of_its_repeats(
    values: list[float], far: dict[str, float]
) -> None:
    found = far_runs(pools_of(results(values)))
    assert {run.result.identity.run: pytest.approx(run.ratio, rel=0.02) for run in found} == far


def test_a_reason_names_the_slowest_first_in_any_order_of_the_runs() -> None:
    pool = results([2.0, 2.0, 2.0, 1.75, 2.25, 2.5, 2.0, 2.0, 2.0])
    text = in_words(pool)
    assert [name in text for name in ("r3", "r4", "r5")] == [True] * 3
    assert text.index("r5") < text.index("r4") < text.index("r3")
    assert in_words(pool[::-1]) == text


def test_more_is_better_above_one() -> None:
    (found,) = far_runs(pools_of(results([100.0, 101.0, 50.0, 99.0], "higher")))
    assert str(found) == "r2 is 0.503 of the median of its 4 repeats"


def test_runs_that_were_accepted_together_are_repeats() -> None:
    nights = [
        replace(result, identity=replace(result.identity, session=str(number // 2)))
        for number, result in enumerate(results([1.0, 1.01, 2.0, 0.99]))
    ]
    assert far_runs(pools_of(nights)) == []
    assert [
        run.result.identity.run for run in far_runs(pools_of(map(without_session, nights)))
    ] == ["r2"]


def test_other_configurations_are_no_repeats() -> None:
    assert (
        far_runs(pools_of([*results([1.0, 1.0, 1.0]), *results([9.0, 9.0], experiment="b")])) == []
    )
