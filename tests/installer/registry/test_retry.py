# SPDX-License-Identifier: Apache-2.0
"""When we ask again: as often as it may help, after the pause that was asked for."""

import pytest

from llmb_installer.registry import ImageFaultError
from llmb_installer.registry.retry import ATTEMPTS, GAIN, LONGEST_PAUSE, AskAgain, own_pause, persist, retry_after

FAULT = ImageFaultError("busy", "no", hint="later")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 37.0),
        ("Sun, 06 Nov 1994 08:48:37 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("", None),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, now=784111740.0) == seconds


def test_pauses_are_bounded() -> None:
    assert all(0 < own_pause(attempt) <= LONGEST_PAUSE for attempt in range(1, 50))


def test_attempts_without_gain_are_bounded() -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise AskAgain(FAULT)

    with pytest.raises(ImageFaultError, match=f"{ATTEMPTS} attempts"):
        persist(fail, lambda *_: None, lambda: len(calls) * (GAIN - 1))
    assert len(calls) == ATTEMPTS


def test_other_faults_are_not_tried_again() -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise FAULT

    with pytest.raises(ImageFaultError):
        persist(fail, lambda *_: None)
    assert len(calls) == 1
