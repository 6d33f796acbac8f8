# SPDX-License-Identifier: Apache-2.0
"""Ends runs, waiting or running, and those that were recorded and never submitted."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from llmb.clusters.base import Cluster
from llmb.errors import LlmbError
from llmb.runs import record, store
from llmb.runs.record import RunRecord
from llmb.runs.state import CANCELLED, NOT_SUBMITTED, JobState
from llmb.submission.follow import poll
from llmb.submission.submit import submission_lock

_BEFORE = "before it was submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResult:
    """What became of a request to end runs: those that will end, those over before, and those left, with the reason."""

    ending: list[RunRecord] = field(default_factory=list)
    over: list[tuple[RunRecord, JobState]] = field(default_factory=list)
    left: list[tuple[RunRecord, str]] = field(default_factory=list)


def cancel(cluster: Cluster, runs: Sequence[RunRecord]) -> CancelResult:
    """End these runs. Raises LlmbError."""
    states = poll(cluster, runs)
    found = CancelResult()
    sent: list[RunRecord] = []
    for run in runs:
        now, state = record.load(run.directory), states[run.id]
        if state.is_end:
            found.over.append((now, state))
        elif state.state == NOT_SUBMITTED:
            _withdraw(now, found)
        elif now.scheduler_id is None:
            found.left.append((now, state.reason or "it is being submitted"))
        elif state.is_elsewhere or state.missing_since is not None:
            found.left.append((now, state.reason))
        else:
            sent.append(now)
    cluster.cancel(sent)
    found.ending.extend(sent)
    return found


def _withdraw(run: RunRecord, found: CancelResult) -> None:
    """End a run that nobody is submitting, unless somebody begins to at this moment."""
    try:
        with submission_lock(run):
            now = record.load(run.directory)
            if now.scheduler_id is None:
                store.save_state(now, JobState(state=CANCELLED, reason=_BEFORE, ended=time.time()))
                found.ending.append(now)
                return
    except LlmbError as error:
        found.left.append((run, error.message))
        return
    found.left.append((run, "it has just been submitted"))
