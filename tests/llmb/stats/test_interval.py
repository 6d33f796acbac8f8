# SPDX-License-Identifier: Apache-2.0
"""Tests of the interval of a mean against tables of Student's t and a case worked by hand."""

import math
import random

import pytest
from hypothesis import given, strategies as st

from llmb.stats.statistics import MOST_REPEATS, Spread, half_width, relative_width, repeats_to_settle, spread, student_t


@pytest.mark.parametrize(
    ("freedom", "table"), [(1, 12.706), (2, 4.303), (9, 2.262), (30, 2.042), (31, 2.040), (40, 2.021), (120, 1.980)]
)
def test_student_t(freedom: int, table: float) -> None:
    assert student_t(freedom) == pytest.approx(table, abs=0.002)


def test_a_case_worked_by_hand() -> None:
    found = spread([0.96, 0.98, 1.00])
    assert [found.mean, found.deviation, found.n] == pytest.approx([0.98, 0.02, 3])
    assert half_width(found) == pytest.approx(4.303 * 0.02 / 3**0.5)


def test_one_value_has_no_width() -> None:
    assert spread([0.96]) == (0.96, 0.0, 1)
    assert half_width(spread([0.96])) == 0.0


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_the_order_changes_nothing(values: list[float], chance: random.Random) -> None:
    shuffled = values[:]
    chance.shuffle(shuffled)
    assert spread(shuffled) == spread(values)


@given(st.floats(0.001, 0.05), st.integers(2, 20), st.floats(0.9, 0.99))
def test_that_many_repeats_settle_it_and_one_less_does_not(deviation: float, n: int, mean: float) -> None:
    found = Spread(mean, deviation, n)
    distance = abs(math.log(mean / 0.95))
    more = repeats_to_settle(distance, found)
    if more is None:
        assert relative_width(found, n + MOST_REPEATS) >= distance
    else:
        assert relative_width(found, n + more) < distance
        assert more == 1 or relative_width(found, n + more - 1) >= distance


def test_a_mean_on_the_limit_is_never_settled() -> None:
    assert repeats_to_settle(0.0, Spread(0.95, 0.01, 3)) is None


def test_repeats_of_both_sides_are_counted_together() -> None:
    """By hand: Student's t for 4 values is 3.182, so each side of 3 + 1 has 3.182 * 0.01 / 2 = 0.0159."""
    ours = theirs = Spread(1.0, 0.01, 3)
    both = math.hypot(3.182 * 0.01 / 2, 3.182 * 0.01 / 2)
    assert repeats_to_settle(both + 1e-4, ours, theirs) == 1
    assert repeats_to_settle(both - 1e-4, ours, theirs) == 2
    assert repeats_to_settle(both - 1e-4, ours) == 1  # alone
    assert repeats_to_settle(both - 1e-4, ours, Spread(1.0, 0.0, 1)) == 1  # a published figure has no spread
