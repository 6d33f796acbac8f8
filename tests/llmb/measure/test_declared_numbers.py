# SPDX-License-Identifier: Apache-2.0
"""Tests that a number is read whole or not at all."""

import pytest

from llmb.measure.log_lines import read_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"thr: 201.5 MB/s", 201.5),
        (b"thr=201, lat=3", 201.0),
        (b"thr=201,lat=3", 201.0),
        (b"thr: 1,201.50 MB/s", None),
        (b"thr: 201,5", None),
    ],
)
def test_a_number_with_a_comma_in_it_is_no_number(text: bytes, value: float | None) -> None:
    assert read_value(text, b"thr") == value


@pytest.mark.parametrize(
    "text",
    ["2.05D+02", "1'205.5", "1_205", "1:02.5", "1h02m", "1m30s", "0xCD", "1.205.5", "2.05e+"],
)
def test_a_number_in_another_form_is_not_read_in_part(text: str) -> None:
    assert read_value(f"busbw={text} latency=3".encode(), b"busbw") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("205 GB/s", 205.0), ("205GB/s", 205.0), ("205, x", 205.0), ("205. x", 205.0)],
        *[("2.5e3", 2500.0), ("205.5}", 205.5), ("1.5s", 1.5), ("-3.2e-05 |", -3.2e-05)],
    ],
)
def test_what_follows_a_number_does_not_change_it(text: str, value: float) -> None:
    assert read_value(f"busbw={text} latency=3".encode(), b"busbw") == value
