# SPDX-License-Identifier: Apache-2.0
"""Tests that a ParseSpec is checked when it is made, field by field, and again against the
workload's metrics.
"""

import math
from typing import Any

import pytest

from llmb.contract.formats import MAXTEXT, MEGATRON, NEMO1, NEMO2, TITAN, ParseSpec
from llmb.contract.spec_checks import check_declared
from llmb.errors import KeyFaultError

RIGHT: dict[str, Any] = {
    "needle": "bandwidth",
    "iteration": r"round (?P<i>\d{1,9})",
    "keys": {"busbw": "bandwidth", "step_time": "ms|milliseconds"},
    "units": {"step_time": 1e-3},
}
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no needle": ({"needle": ""}, "needle", "needle-empty"),
    "a blank": ({"needle": " "}, "needle", "needle-empty"),
    "two lines": ({"needle": "a\nb"}, "needle", "needle-invalid"),
    "half a pattern": ({"iteration": "("}, "iteration", "pattern-invalid"),
    "no group": ({"iteration": r"round (\d+)"}, "iteration", "group-missing"),
    "another group": (
        {"iteration": r"round (?P<i>\d+)/(?P<lst>\d+)"},
        "iteration",
        "group-unknown",
    ),
    "anything": ({"iteration": r"(?P<i>\d*)"}, "iteration", "pattern-empty"),
    "an optional number": ({"iteration": r"\d/\d(?P<i>x)?"}, "iteration", "group-optional"),
    "a number that may be repeated zero times": (
        {"iteration": r"step (?P<i>\d+){0,2}"},
        "iteration",
        "group-optional",
    ),
    "a word": ({"iteration": r"step (?P<i>[a-z]+)"}, "iteration", "group-no-number"),
    "a fraction": ({"iteration": r"step (?P<i>(?:\d+)\.\d+)"}, "iteration", "group-no-number"),
    "nothing": ({"iteration": r"step (?P<i>\d*)"}, "iteration", "group-no-number"),
    "a last number of letters": (
        {"iteration": r"(?P<i>\d+)/(?P<last>x)?"},
        "iteration",
        "group-no-number",
    ),
    "an empty key": ({"keys": {"busbw": ""}, "units": {}}, "keys.busbw", "key-empty"),
    "half a key": ({"keys": {"busbw": "a|"}, "units": {}}, "keys.busbw", "key-empty"),
    "a name with a dash": ({"keys": {"bus-bw": "bw"}, "units": {}}, "keys.bus-bw", "name-invalid"),
    "a unit of nothing": ({"units": {"steptime": 1.0}}, "units.steptime", "key-unknown"),
    "a unit of zero": ({"units": {"step_time": 0.0}}, "units.step_time", "unit-invalid"),
    "a unit below zero": ({"units": {"step_time": -1.0}}, "units.step_time", "unit-invalid"),
    "a unit without end": ({"units": {"step_time": math.inf}}, "units.step_time", "unit-invalid"),
}


@pytest.mark.parametrize(("change", "key", "code"), WRONG.values(), ids=WRONG)
def test_what_can_never_be_right_is_refused_with_its_field_and_a_fix(
    change: dict[str, Any], key: str, code: str
) -> None:
    with pytest.raises(KeyFaultError) as caught:
        ParseSpec(**RIGHT | change)
    fault = caught.value.as_fault("x")
    assert (fault.key, fault.code) == (key, code)
    assert fault.hint


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?P<i>\d{1,9})(?:/(?P<last>\d{1,9}))?",
        r"(?P<i>\d{5,8})(?P<last>0000)?",
        r"step (?P<i>[ \d]{1,9})",
        r"(?P<i>\d+(?=/))/(?P<last>\d+)",
        r"[(](?P<i>(?:\d)+)[])]",
        r"round (?P<i>\S+) ",
        r"(?x) step [ ] (?P<i> \d+ ) # the (number",
        r"(?:epoch (?P<last>\d+) )?step (?P<i>[1-9]\d*)",
    ],
)
def test_groups_of_numbers_however_they_are_written(pattern: str) -> None:
    assert ParseSpec(**RIGHT | {"iteration": pattern}).iteration == pattern


def test_the_nearest_name_is_the_fix() -> None:
    with pytest.raises(KeyFaultError) as caught:
        ParseSpec(**RIGHT | {"units": {"steptime": 1.0}})
    assert "'step_time'" in str(caught.value.hint)


@pytest.mark.parametrize("spec", [NEMO1, NEMO2, MEGATRON, MAXTEXT, TITAN, ParseSpec(**RIGHT)])
def test_every_spec_of_llmb_is_right(spec: ParseSpec) -> None:
    check_declared(spec.keys, ["busbw"])


@pytest.mark.parametrize(
    ("keys", "key", "code"),
    [
        ({"busbw": "bw", "latncy": "lat"}, "keys.latncy", "key-unknown"),
        ({"step_tme": "ms"}, "keys.step_tme", "key-unknown"),
        ({"loss": "loss"}, "keys", "keys-missing"),
        ({}, "keys", "keys-missing"),
    ],
)
def test_keys_are_of_training_or_declared_and_one_is_measured(
    keys: dict[str, str], key: str, code: str
) -> None:
    with pytest.raises(KeyFaultError) as caught:
        check_declared(keys, ["busbw", "latency"])
    fault = caught.value.as_fault("x")
    assert (fault.key, fault.code) == (key, code)
    assert fault.hint
