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
