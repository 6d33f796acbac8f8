# SPDX-License-Identifier: Apache-2.0
"""Tests of the interval of a mean against tables of Student's t and a case worked by hand."""

import random

import pytest
from hypothesis import given, strategies as st

from llmb.measure.statistics import (
    half_width,
    spread,
    student_t,
)


@pytest.mark.parametrize(
    ("freedom", "table"),
    [(1, 12.706), (2, 4.303), (9, 2.262), (30, 2.042), (31, 2.040), (40, 2.021), (120, 1.980)],
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
