# SPDX-License-Identifier: Apache-2.0
"""Cancels runs: waiting, running, or recorded and never submitted."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from llmb.clusters.base import Cluster
from llmb.errors import LlmbError
from llmb.runs import record, store
from llmb.runs.state import CANCELLED, NOT_SUBMITTED, JobState
from llmb.submission.follow import poll
from llmb.submission.submit import submission_lock


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResult:
    """Runs being cancelled, runs that had ended before, and runs not cancelled, each with the reason."""

    cancelling: list[record.RunRecord] = field(default_factory=list)
    ended: list[tuple[record.RunRecord, JobState]] = field(default_factory=list)
    not_cancelled: list[tuple[record.RunRecord, str]] = field(default_factory=list)


def cancel(cluster: Cluster, runs: Sequence[record.RunRecord]) -> CancelResult:
    """Cancel these runs. Raises LlmbError."""
    states = poll(cluster, runs)
    found = CancelResult()
    sent: list[record.RunRecord] = []
    for run in runs:
        now, state = record.load(run.directory), states[run.id]
        if state.is_end:
            found.ended.append((now, state))
        elif state.state == NOT_SUBMITTED:
            _withdraw(now, found)
        elif now.scheduler_id is None:
            found.not_cancelled.append((now, state.reason or "it is being submitted"))
        elif state.is_elsewhere or state.missing_since is not None:
            found.not_cancelled.append((now, state.reason))
        else:
            sent.append(now)
    cluster.cancel(sent)
    found.cancelling.extend(sent)
    return found


def _withdraw(run: record.RunRecord, found: CancelResult) -> None:
    """Cancel a run that no process is submitting, unless one starts to at this moment."""
    try:
        with submission_lock(run):
            now = record.load(run.directory)
            if now.scheduler_id is None:
                store.save_state(now, JobState(state=CANCELLED, reason="before it was submitted", ended=time.time()))
                found.cancelling.append(now)
                return
    except LlmbError as error:
        found.not_cancelled.append((run, error.message))
        return
    found.not_cancelled.append((run, "it has just been submitted"))
