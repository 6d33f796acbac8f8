# SPDX-License-Identifier: Apache-2.0
"""What it means that a cluster does not know a run: nothing at the first look, LOST at a second one. Pure.

LOST is provisional: the cluster is asked again with every later command, and whatever it then says takes its place.
"""

from dataclasses import replace

from llmb.runs.state import LOST, UNKNOWN, JobState

SECOND_LOOK = 60.0  # seconds after the first look that did not find a run
RETRY_AFTER = 600.0  # seconds after a run was lost: until then it may turn up again


def judged(seen: JobState | None, state: JobState, now: float) -> JobState:
    """What a poll that found ``state`` at ``now`` makes of a run of which ``seen`` was known."""
    is_lost = seen is not None and seen.state == LOST
    if state.state == UNKNOWN and is_lost:  # nothing was learnt
        state = replace(state, state=LOST)
    if state.state != LOST or state.certain:
        return state
    if seen is not None and is_lost:
        return seen
    before = seen or JobState(state=UNKNOWN)
    since = before.missing_since
    if since is None or since > now:  # the clock was set back
        since = now
    if now - since >= SECOND_LOOK:
        return replace(state, started=before.started, ended=now, missing_since=since)
    return replace(before, reason=f"{state.reason}; llmb looks again in a minute", missing_since=since)


def may_be_retried(state: JobState, now: float) -> bool:
    """Whether another attempt after ``state`` cannot meet the one before any more."""
    return state.is_final or not state.is_end or not 0 <= now - (state.ended or 0.0) < RETRY_AFTER
