# SPDX-License-Identifier: Apache-2.0
"""States of jobs, in Slurm's words: which of them are ends, and when a run is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from llmb.core.values import dataclass

PENDING, RUNNING, UNKNOWN = "PENDING", "RUNNING", "UNKNOWN"
COMPLETED, FAILED, CANCELLED, TIMEOUT = "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"
LOST = "LOST"  # the machine or its scheduler no longer has the job, and it has no end state
NOT_SUBMITTED = "NOT_SUBMITTED"  # recorded, but its submitter is gone

_ENDS = "BOOT_FAIL DEADLINE NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED"
ENDS = frozenset((COMPLETED, FAILED, CANCELLED, TIMEOUT, LOST, *_ENDS.split()))
# Slurm's other states: of a job that has not started or will start again, and of one that has.
_WAITING = (
    "CONFIGURING EXPEDITING LAUNCH_FAILED POWER_UP_NODE RECONFIG_FAIL "
    "REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT"
)
WAITING = frozenset((PENDING, *_WAITING.split()))
ACTIVE = frozenset(
    {
        RUNNING,
        "COMPLETING",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
        "UPDATE_DB",
    }
)
KNOWN = ENDS | WAITING | ACTIVE
# Codes of a state's reason, each with how the reason begins.
# the scheduler refused the run: it never had a job
REFUSED_CODE, REFUSED = "refused", "not submitted: "
# an earlier state: the cluster did not answer
NO_ANSWER_CODE, NO_ANSWER = "no-answer", "no answer: "
# another cluster than the one that was asked has the run
ELSEWHERE_CODE, ELSEWHERE = "elsewhere", "elsewhere: "
NO_FOLDER_CODE = "no-folder"  # of LOST: somebody deleted the run's folder
NEXT_CODE, NEXT = "next", "it is next"  # the first in a queue where one job runs after another
_LAST_YEAR = 253402300799  # the end of the year 9999, in seconds since the epoch


def check_time(seconds: float) -> None:
    """Raise ValueError unless ``seconds`` is a time since the epoch, up to the year 9999."""
    if not 0 <= seconds <= _LAST_YEAR:
        raise ValueError(f"{seconds:g} is not a time in seconds since 1970")


Moment = Annotated[float, check_time]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job's state at one moment. Times are in seconds since the epoch."""

    state: str
    #: Why it waits or how it ended.
    reason: str = ""
    exit_code: int | None = None
    started: Moment | None = None
    ended: Moment | None = None
    #: What to do about it, if the cluster type knows.
    fix: str = ""
    #: When the run's cluster first did not know it, None while it does.
    missing_since: Moment | None = None
    #: Of LOST: the run cannot turn up again.
    certain: bool = False
    #: The kind of reason, empty for most. Program flow depends on it, never on the text.
    code: str = ""
    #: The nodes that the scheduler gave the job, ``n[1-4],n7``; empty if it names none.
    nodes: str = ""

    @property
    def is_refused(self) -> bool:
        """Return True if the scheduler refused it: it never had a job."""
        return self.code == REFUSED_CODE

    @property
    def is_end(self) -> bool:
        """Return True if the run has ended, as far as is known. An unknown state is not an end."""
        return self.state in ENDS

    @property
    def is_final(self) -> bool:
        """Return True if it cannot change. A later state replaces LOST, unless that is certain."""
        return self.is_end and (self.state != LOST or self.certain)

    @property
    def is_doubtful(self) -> bool:
        """Return True if it is an earlier state or UNKNOWN, as the cluster gave no answer."""
        return self.code in (NO_ANSWER_CODE, ELSEWHERE_CODE)

    @property
    def is_elsewhere(self) -> bool:
        """Return True if the cluster that was asked is not the one that took the run."""
        return self.code == ELSEWHERE_CODE

    @property
    def detail(self) -> str:
        """The reason without the beginning that its code gives it."""
        return self.reason.removeprefix(NO_ANSWER).removeprefix(ELSEWHERE)

    @property
    def is_over(self) -> bool:
        """Return True if waiting is pointless: it has ended, or no process is submitting it."""
        return self.is_end or self.state == NOT_SUBMITTED

    def unanswered(self, message: str) -> JobState:
        """Return this earlier state of a run whose cluster does not answer, with the reason."""
        return replace(self, code=NO_ANSWER_CODE, reason=f"{NO_ANSWER}{message}")

    def elsewhere(self, clusters: str) -> JobState:
        """Return this earlier state of a run that another cluster has. ``clusters`` names both."""
        return replace(self, code=ELSEWHERE_CODE, reason=f"{ELSEWHERE}{clusters}")


CONFIRM_AFTER = 60.0  # seconds after the first poll that did not find a run


def confirm_lost(last: JobState | None, state: JobState, now: float) -> JobState:
    """Return the state after a poll found ``state`` at ``now``, and ``last`` before.

    A run that the cluster does not know keeps its last state at first, and is LOST a minute later.
    LOST is provisional: later commands ask again, and what the cluster then reports replaces it.
    """
    is_lost = last is not None and last.state == LOST
    if state.state == UNKNOWN and is_lost:  # no news
        state = replace(state, state=LOST)
    if state.state != LOST or state.certain:
        return state
    if last is not None and is_lost:
        return last
    before = last or JobState(state=UNKNOWN)
    since = before.missing_since
    if since is None or since > now:  # the clock was set back
        since = now
    if now - since >= CONFIRM_AFTER:
        return replace(state, started=before.started, ended=now, missing_since=since)
    return replace(
        before, reason=f"{state.reason}; llmb checks again in a minute", missing_since=since
    )
