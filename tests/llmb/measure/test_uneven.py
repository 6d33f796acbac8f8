# SPDX-License-Identifier: Apache-2.0
"""Tests of the reasons for low clocks that are printed."""

import pytest

from llmb.measure.uneven import slowing_reasons


@pytest.mark.parametrize(
    ("throttle", "words"),
    [
        ({"hw_thermal": 0.2}, ("heat (hardware)",)),
        ({"hw_thermal": 0.1}, ("heat (hardware)",)),
        ({"hw_thermal": 0.09}, ()),
        ({"hw_thermal": 0.2, "hw_slowdown": 0.2}, ("heat (hardware)",)),
        ({"hw_power_brake": 0.2, "hw_slowdown": 0.2}, ("the power brake",)),
        ({"sw_power_cap": 0.9}, ()),
    ],
)
def test_reasons_that_last_and_are_the_most_precise(
    throttle: dict[str, float], words: tuple[str, ...]
) -> None:
    assert slowing_reasons(throttle) == words


def test_a_slowdown_of_no_known_cause_is_a_reason_of_its_own() -> None:
    (words,) = slowing_reasons({"hw_slowdown": 0.2})
    assert "heat" not in words
    assert slowing_reasons({"hw_slowdown": 0.2, "sw_thermal": 0.2}) == ("heat (driver)", words)
