# SPDX-License-Identifier: Apache-2.0
"""The last state of a run that a poll has stored in its folder."""

from llmb.contract.record import RunRecord
from llmb.contract.state import UNKNOWN, JobState
from llmb.core import console, files, typed
from llmb.errors import LlmbError

STATE = "state.json"


def seen_state(run: RunRecord) -> JobState | None:
    """Return the last polled state of the run's current attempt, or None if it was never polled.

    Also None, with a warning, if its file is damaged or unreadable: the cluster is then asked
    again.
    """
    path = f"{run.place}/{STATE}"
    try:
        data = files.read_json(path)
        return None if data is None else typed.read_own(JobState, path, data)
    except LlmbError as error:
        console.warn_once(error.message)
        return None


def last_seen(run: RunRecord) -> JobState:
    """Return the state that an earlier poll stored, UNKNOWN without one."""
    return seen_state(run) or JobState(state=UNKNOWN)
