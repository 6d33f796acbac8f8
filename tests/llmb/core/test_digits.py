# SPDX-License-Identifier: Apache-2.0
"""Sentences on limits never have a number that is on the other side of its limit, or equal to it."""

import re

import pytest
from hypothesis import example, given, strategies as st

from llmb.contract.metrics import MetricSpec
from llmb.judge.value import FAIL, PASS, SUSPICIOUS, WARN, judge_values, outside_limits
from llmb.plan.estimate import TotalEstimate, describe, hours_in_words

RATIOS = st.floats(0.94, 1.06) | st.sampled_from([0.95, 0.98, 1.05]).flatmap(
    lambda limit: st.floats(-1e-5, 1e-5).map(lambda difference: limit + difference)
)


@given(ratio=RATIOS)
@example(ratio=0.949976)
@example(ratio=0.979944)
@example(ratio=1.050055)
def test_a_ratio_is_on_its_side_of_the_limit(ratio: float) -> None:
    metric = MetricSpec(name="speed")
    judgement = judge_values([ratio], [1.0], metric, exact=True)
    match = re.match(r"([\d.]+) \(n=1\) is (?:below |above )?([\d.]+)", judgement.reason)
    assert match is not None
    shown, limit = map(float, match.groups())
    assert {
        FAIL: shown < limit == 0.95,
        WARN: shown < limit == 0.98,
        PASS: shown >= limit == 0.98,
        SUSPICIOUS: shown > limit == 1.05,
    }[judgement.verdict]


def test_a_pass_by_a_hair_is_not_shown_below_its_limit() -> None:
    metric = MetricSpec(name="speed", warn_below=0.9804)
    reason = judge_values([0.98041], [1.0], metric, exact=True).reason
    assert reason == "0.98041 (n=1) is 0.9804 or more"


def test_a_ratio_far_from_its_limit_has_three_decimals() -> None:
    for ratio, text in ((0.9, "0.900"), (0.9612345, "0.961"), (1.0, "1.000"), (0.9803, "0.980")):
        reason = judge_values([ratio], [1.0], MetricSpec(name="speed"), exact=True).reason
        assert reason.startswith(f"{text} (n=1)")


@pytest.mark.parametrize(
    ("value", "limits", "words"),
    [
        (99.9999, {"minimum": 100.0}, "v 99.9999 GB/s is below the minimum 100.000 GB/s"),
        (42.0, {"minimum": 100.0}, "v 42.00 GB/s is below the minimum 100.0 GB/s"),
        (45.0001, {"maximum": 45.0}, "v 45.0001 GB/s is above the maximum 45.0000 GB/s"),
        (0.04999999, {"minimum": 0.05}, "v 0.04999999 GB/s is below the minimum 0.05 GB/s"),
        (100.0, {"minimum": 100.0}, None),
    ],
)
def test_a_value_is_on_its_side_of_the_limit(
    value: float, limits: dict[str, float], words: str | None
) -> None:
    assert outside_limits(value, MetricSpec(name="v", unit="GB/s", **limits)) == words  # type: ignore[arg-type]


@given(st.floats(0, 1e5), st.floats(0, 1e5))
@example(0.949, 0.95)
@example(0.9949, 0.9951)
def test_more_hours_are_never_shown_as_fewer(one: float, other: float) -> None:
    shown = [float(hours_in_words(hours).replace(",", "")) for hours in sorted((one, other))]
    assert shown == sorted(shown)


def test_an_estimate_above_the_limits_is_shown_above_them() -> None:
    text = describe(
        TotalEstimate(gpu_hours=0.6102, most=0.61, past=1),
        "GPU",
    )
    assert text == (
        "about 0.6102 GPU-hours (from past runs), more than the 0.61 GPU-hours by its time limit"
    )
