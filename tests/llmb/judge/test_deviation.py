# SPDX-License-Identifier: Apache-2.0
"""Deviations: against published constants, closed forms and data whose deviation is known."""

import math
import random

import pytest
from hypothesis import given, strategies as st

from llmb.judge import deviation
from llmb.judge.deviation import Deviations, Variance, common_variance, half_width, variance_of

EULER = 0.5772156649015329


@pytest.mark.parametrize(
    ("x", "value"),
    [
        (1, -EULER),
        (2, 1 - EULER),
        (0.5, -EULER - 2 * math.log(2)),
        (0.25, -EULER - math.pi / 2 - 3 * math.log(2)),  # Gauss's digamma theorem
    ],
)
def test_digamma_has_its_known_values(x: float, value: float) -> None:
    assert deviation._digamma(x) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(
    ("x", "value"),
    [(1, math.pi**2 / 6), (0.5, math.pi**2 / 2), (2, math.pi**2 / 6 - 1)],
)
def test_trigamma_has_its_known_values(x: float, value: float) -> None:
    assert deviation._trigamma(x) == pytest.approx(value, abs=1e-9)
    assert deviation._inverse_trigamma(value) == pytest.approx(x, rel=1e-9)


@pytest.mark.parametrize(
    ("freedom", "value"),
    [(1, 12.706), (2, 4.303), (10, 2.228), (30, 2.042), (60, 2.000), (120, 1.980)],
)
def test_quantiles_are_those_of_the_tables(freedom: float, value: float) -> None:
    assert deviation.quantile(freedom) == pytest.approx(value, abs=0.001)


def test_quantiles_between_whole_numbers_are_between_their_values() -> None:
    assert 2.228 < deviation.quantile(9.5) < 2.262
    assert deviation.quantile(math.inf) == pytest.approx(1.96, abs=0.001)


def test_the_variance_is_that_of_logarithms_around_each_side() -> None:
    found = variance_of([math.exp(0.01), math.exp(-0.01)], [2.0], [5 * math.exp(0.02), 5.0])
    assert found is not None
    assert found.freedom == 2
    # 2 · 0.01² and 2 · 0.01²
    assert found.value == pytest.approx((2e-4 + 2e-4) / 2)


def test_single_values_have_no_variance() -> None:
    assert variance_of([1.0], [2.0], []) is None
    assert common_variance([]) is None


def test_equal_deviations_are_pooled() -> None:
    """Variances that differ as chance alone makes them differ have one deviation."""
    rng = random.Random(1)
    groups = [[math.exp(rng.gauss(0, 0.01)) for _ in range(3)] for _ in range(400)]
    known = [found for group in groups if (found := variance_of(group))]
    common = common_variance(known)
    assert common is not None
    assert math.sqrt(common.value) == pytest.approx(0.01, rel=0.05)
    assert common.freedom > 50
    # One that happens to be tiny is not taken for exact.
    assert common.moderate(Variance(1e-12, 2)).deviation == pytest.approx(0.01, rel=0.1)


def test_different_deviations_are_distinguished() -> None:
    """The prior's own parameters are found: variances drawn with 6 degrees of freedom around 1 %.

    A scaled inverse chi-square distribution is what the method assumes (Smyth 2004, equation 2).
    """
    rng = random.Random(2)
    known = []
    for _ in range(3000):
        variance = 1e-4 * 6 / rng.gammavariate(3, 2)
        group = [math.exp(rng.gauss(0, math.sqrt(variance))) for _ in range(6)]
        known.append(variance_of(group))
    common = common_variance(each for each in known if each is not None)
    assert common is not None
    assert common.freedom == pytest.approx(6, rel=0.2)
    assert common.value == pytest.approx(1e-4, rel=0.1)


def test_one_configuration_alone_has_its_own_deviation() -> None:
    own = Variance(1e-4, 2)
    common = common_variance([own])
    assert common is not None
    assert common.moderate(own) == own


def test_a_single_run_has_the_deviation_of_the_others() -> None:
    common = common_variance([Variance(1e-4, 2), Variance(1.1e-4, 2), Variance(0.9e-4, 2)])
    assert common is not None
    single = common.moderate(None)
    assert single.deviation == pytest.approx(0.01, rel=0.05)
    assert single.freedom <= 6


def test_equal_runs_have_a_deviation_of_zero_and_no_failure() -> None:
    common = common_variance([Variance(0.0, 2), Variance(0.0, 2)])
    assert common is not None
    assert half_width(common.moderate(Variance(0.0, 2)), 3) == 0


def test_equal_runs_beside_others_that_deviate_are_not_taken_for_exact() -> None:
    """Also if more than half of the configurations have equal runs, as rounded times may be."""
    equal = Variance(0.0, 2)
    common = common_variance([equal, equal, Variance(1e-4, 2)])
    assert common is not None
    assert common.moderate(equal).deviation > 1e-5


@given(
    st.lists(st.floats(1e-8, 1e-2), min_size=2, max_size=8),
    st.integers(1, 5),
    st.integers(1, 50),
)
def test_with_the_same_variance_more_runs_never_widen_the_interval(
    variances: list[float], freedom: int, count: int
) -> None:
    common = common_variance(Variance(value, freedom) for value in variances)
    assert common is not None
    moderated = common.moderate(Variance(variances[0], freedom))
    assert half_width(moderated, count + 1, 3) <= half_width(moderated, count, 3)
    assert freedom <= moderated.freedom <= freedom * len(variances)


def test_chance_is_that_of_the_normal_distribution() -> None:
    width = 1.959964 * math.log(0.98)  # the limit is one standard error away
    interval = math.exp(width), math.exp(-width)
    assert deviation.chance_below(0.98, interval) == pytest.approx(0.1587, abs=0.0001)
    assert deviation.chance_below(0.98, (1.0, 1.0)) == 0


def test_a_second_repeat_says_no_less_than_one_run() -> None:
    """Student's t for one degree of freedom alone is 12.7: the steps keep the interval narrow."""
    single = Deviations([[[2.0]]]).of([2.0], steps=[0.01])
    pair = Deviations([[[2.0, 2.02]]]).of([2.0, 2.02], steps=[0.01, 0.01])
    assert single is not None
    assert pair is not None
    assert single.source == pair.source == "the spread of the steps"
    assert (
        half_width(pair.variance, 2) < half_width(single.variance, 1) == pytest.approx(0.0223, 1e-2)
    )


def test_repeats_that_differ_more_than_their_steps_are_believed() -> None:
    pair = Deviations([[[2.0, 2.2]]]).of([2.0, 2.2], steps=[0.001, 0.001])
    assert pair is not None
    assert pair.variance.deviation == pytest.approx(math.log(1.1) / math.sqrt(2))


def test_other_configurations_say_how_much_a_single_run_deviates() -> None:
    rng = random.Random(3)
    several = [[[math.exp(rng.gauss(0, 0.01)) for _ in range(3)]] for _ in range(12)]
    known = Deviations([*several, [[2.0]]]).of([2.0], steps=[0.2])
    assert known is not None
    assert known.source == "12 configurations"
    assert known.variance.deviation == pytest.approx(0.01, rel=0.3)


def test_nothing_says_how_much_a_single_run_without_steps_deviates() -> None:
    assert Deviations([[[2.0]]]).of([2.0]) is None


@pytest.mark.parametrize(("repeats", "least"), [(3, 0.91), (5, 0.92)])
def test_the_interval_covers_as_often_as_it_says_whatever_the_steps_say(
    repeats: int, least: float
) -> None:
    """Steps that deviate by 0.1 %, in runs that deviate by 1 %, covered 84 and 90 %."""
    rng = random.Random(7)
    inside = 0
    for _ in range(1000):
        values = [math.exp(rng.gauss(0, 0.01)) for _ in range(repeats)]
        known = Deviations([[values]]).of(values, steps=[0.001] * repeats)
        assert known is not None
        mean = math.fsum(map(math.log, values)) / repeats
        inside += abs(mean) <= half_width(known.variance, repeats)
    assert least < inside / 1000 < 0.98


def test_steps_that_were_a_bad_guess_add_no_certainty() -> None:
    """By hand: a variance of 1e-4 beside a guess of 1e-6 leaves 10 · 0.01² degrees of freedom."""
    values = [math.exp(0.01), 1.0, math.exp(-0.01)]
    known = Deviations([[values]]).of(values, steps=[0.001])
    assert known is not None
    assert known.variance.value == pytest.approx(1e-4)
    assert known.variance.freedom == pytest.approx(2 + 10 * 0.01**2)
    calm = Deviations([[values]]).of(values, steps=[0.01])
    assert calm is not None
    assert calm.variance.freedom == pytest.approx(12)
