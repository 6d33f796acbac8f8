# SPDX-License-Identifier: Apache-2.0
"""Tests of the search for changes of level: planted ones, noise, outliers, and Student's t."""

import math
import random

import pytest
from hypothesis import given, strategies as st

from llmb.judge.change_points import change_points, two_sided


@pytest.mark.parametrize(
    ("t", "freedom", "chance"),
    [  # Abramowitz and Stegun, table 26.10
        *[(12.706, 1, 0.05), (4.303, 2, 0.05), (3.182, 3, 0.05), (2.228, 10, 0.05)],
        *[(2.042, 30, 0.05), (4.587, 10, 0.001), (63.657, 1, 0.01), (3.707, 6, 0.01)],
    ],
)
def test_the_chance_is_that_of_the_tables(t: float, freedom: int, chance: float) -> None:
    assert two_sided(t, freedom) == pytest.approx(chance, rel=2e-3)


def noisy(seed: int, *levels: tuple[float, int], deviation: float = 0.01) -> list[float]:
    chance = random.Random(seed)
    return [
        level * math.exp(chance.gauss(0, deviation))
        for level, count in levels
        for _ in range(count)
    ]


def test_two_planted_changes_are_found_with_their_levels() -> None:
    values = noisy(1, (1.0, 12), (0.95, 9), (1.02, 8))
    first, second = change_points(values)
    assert (first.index, first.counts) == (12, (12, 9))
    assert (second.index, second.counts) == (21, (9, 8))
    assert first.before == pytest.approx(1.0, abs=0.01)
    assert first.after == second.before == pytest.approx(0.95, abs=0.01)
    assert first.moved == pytest.approx(-0.05, abs=0.015)


@pytest.mark.parametrize("count", [4, 8, 30, 60])
def test_noise_has_a_change_in_at_most_three_of_a_hundred_series(count: int) -> None:
    found = sum(bool(change_points(noisy(seed, (1.0, count)))) for seed in range(300))
    assert found <= 9


def test_two_nights_of_five_percent_less_are_found() -> None:
    found = [change_points(noisy(seed, (1.0, 20), (0.95, 2))) for seed in range(100)]
    assert sum([change.index for change in changes] == [20] for changes in found) >= 90


@pytest.mark.parametrize("counts", [(38, 80), (100, 80), (30, 300)])
@pytest.mark.parametrize("level", [0.96, 0.9, 0.5])
def test_a_clear_change_of_a_long_series_is_one_at_its_night(
    counts: tuple[int, int], level: float
) -> None:
    for seed in range(60):
        values = noisy(seed, (1.0, counts[0]), (level, counts[1]), deviation=0.0017)
        assert [change.index for change in change_points(values)] == [counts[0]], seed


def test_another_reference_changes_no_night() -> None:
    values = noisy(2, (1.0, 38), (0.96, 80), (0.9, 30), deviation=0.0017)
    for factor in (0.3, 0.978, 1.021, 7.0):
        found = change_points([value * factor for value in values])
        assert [change.index for change in found] == [38, 118]


def test_of_steps_that_are_too_small_the_smallest_is_omitted_first() -> None:
    # together 1.2 %: without the first, smaller one, the second is large enough
    values = [1.0] * 20 + [0.9965] * 20 + [0.988] * 20
    (change,) = change_points(values)
    assert (change.index, change.counts) == (40, (40, 20))


@pytest.mark.parametrize(
    "values",
    [
        *[[], [1.0], [1.0, 0.5], [1.0, 1.0, 0.5]],  # too few to tell
        [1.0, 1.001, 0.999, 1.0, 0.8],  # one night may be an outlier
        [1.0, 1.001, 0.8, 1.0, 0.999, 1.001],
        [1.0] * 10 + [0.995] * 10,  # certain, and smaller than anybody cares
        [1.0] * 10,
    ],
)
def test_no_change(values: list[float]) -> None:
    assert change_points(values) == []


def test_equal_values_with_one_step() -> None:
    (change,) = change_points([1.0] * 3 + [0.98] * 2)
    assert (change.index, round(change.moved, 6), change.counts) == (3, -0.02, (3, 2))


@given(st.lists(st.floats(0.5, 2.0), max_size=40))
def test_levels_cover_the_series_and_no_change_is_small(values: list[float]) -> None:
    changes = change_points(values)
    assert all(abs(change.moved) >= 0.0099 for change in changes)
    bounds = [0, *(change.index for change in changes), len(values)]
    for number, change in enumerate(changes):
        first, index, last = bounds[number : number + 3]
        assert change.counts == (index - first, last - index)
        assert min(change.counts) >= 2
        logs = [math.log(value) for value in values[index:last]]
        assert change.after == pytest.approx(math.exp(math.fsum(logs) / len(logs)))
