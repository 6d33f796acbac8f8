# SPDX-License-Identifier: Apache-2.0
"""WWW-Authenticate headers as registries send them."""

import pytest

from llmb.core.call_time_limit import time_limit
from sqshpull.sign_in import Challenge, read_challenges

BEARER = Challenge(
    scheme="bearer", realm="https://a/t", service="s", scope="repository:x/y:pull,push"
)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (['Bearer realm="https://a/t",service="s",scope="repository:x/y:pull,push"'], [BEARER]),
        (
            [
                'bearer realm="https://a/t", service=s, scope="repository:x/y:pull,push",'
                ' error="invalid_token"'
            ],
            [BEARER],
        ),
        (['Basic realm="one, Bearer two"'], [Challenge(scheme="basic", realm="one, Bearer two")]),
        (["Basic"], [Challenge(scheme="basic")]),
        (
            [
                'Basic realm="x", Bearer'
                ' realm="https://a/t",service="s",scope="repository:x/y:pull,push"'
            ],
            [Challenge(scheme="basic", realm="x"), BEARER],
        ),
        (
            ["Negotiate", 'Basic realm="x"'],
            [Challenge(scheme="negotiate"), Challenge(scheme="basic", realm="x")],
        ),
        ([], []),
        ([""], []),
    ],
)
def test_headers(headers: list[str], found: list[Challenge]) -> None:
    assert read_challenges(headers) == found


def test_a_header_without_end_costs_no_more_than_a_long_one() -> None:
    """Each of these cost the square of its length: 200,000 characters took minutes."""
    for unit in ("a", 'x="\\"', ", ", "a " * 3, '"'):
        with time_limit(200):
            read_challenges([unit * 200_000])
    assert read_challenges(['Basic realm="x"' + " " * 20_000]) == [
        Challenge(scheme="basic", realm="x")
    ]
