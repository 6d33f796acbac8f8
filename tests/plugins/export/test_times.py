# SPDX-License-Identifier: Apache-2.0
"""The times of runs, as their records and their last states have them."""

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from llmb import api
from llmb_export.results import Times, select

SUBMITTED = 100.0


def times(state: api.JobState | None, monkeypatch: pytest.MonkeyPatch) -> Times:
    run = SimpleNamespace(id="a", submitted_at=SUBMITTED)
    monkeypatch.setattr(api, "seen_state", lambda _: state)
    text = json.dumps({"results": [{"run": "a"}]})
    context: Any = SimpleNamespace(call=lambda _: (0, text), runs=lambda: [run])
    return select(context, []).times["a"]


@pytest.mark.parametrize(
    ("state", "ran", "ended"),
    [
        (None, None, None),
        (api.JobState(state="PENDING"), None, None),
        (api.JobState(state="COMPLETED", started=110.0, ended=130.0), 20.0, 130.0),
        (api.JobState(state="FAILED", started=130.0, ended=110.0), 0.0, 110.0),  # clocks differ
        (api.JobState(state="FAILED", started=110.0), None, None),
        (api.JobState(state="CANCELLED", ended=110.0), None, 110.0),
    ],
)
def test_times_of_a_run(
    state: api.JobState | None,
    ran: float | None,
    ended: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert times(state, monkeypatch) == Times(submitted=SUBMITTED, ran=ran, ended=ended)


def test_a_run_that_has_not_ended_runs_until_now(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = time.time()
    state = api.JobState(state="RUNNING", started=begin - 50, ended=begin - 40)
    measured = times(state, monkeypatch)
    assert measured.ran is not None
    assert measured.ran >= 50
    assert measured.ended is None
