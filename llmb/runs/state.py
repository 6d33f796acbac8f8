# SPDX-License-Identifier: Apache-2.0
"""States of jobs, in Slurm's words: which of them are ends, and when a run is lost."""

from dataclasses import dataclass, replace
from typing import Annotated

PENDING, RUNNING, UNKNOWN = "PENDING", "RUNNING", "UNKNOWN"
COMPLETED, FAILED, CANCELLED, TIMEOUT = "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"
LOST = "LOST"  # the machine or its scheduler no longer has the job, and it left no end
NOT_SUBMITTED = "NOT_SUBMITTED"  # recorded, and whoever was to submit it is gone

ENDS = frozenset(
    {
        COMPLETED,
        FAILED,
        CANCELLED,
        TIMEOUT,
        LOST,
        "BOOT_FAIL",
        "DEADLINE",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
    }
)
# Slurm's other words: those of a job that has not started, or is to start again, and those of one that has.
WAITING = frozenset(
    {
        PENDING,
        "CONFIGURING",
        "EXPEDITING",
        "LAUNCH_FAILED",
        "POWER_UP_NODE",
        "RECONFIG_FAIL",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
    }
)
ACTIVE = frozenset({RUNNING, "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED", "UPDATE_DB"})
KNOWN = ENDS | WAITING | ACTIVE
# What the machines did to a job, not the job to itself: worth another attempt as it is.
RETRIABLE = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL", LOST})
REFUSED = "not submitted: "  # so begins the reason of a run that never had a job
NEXT = "it is next"  # the reason of the first that waits, where one job runs after another
_LAST_YEAR = 253402300799  # the end of the year 9999, in seconds since the epoch
NO_ANSWER = "no answer: "  # a reason that begins so: the state is an old one, as the cluster did not say
ELSEWHERE = "elsewhere: "  # so begins the reason where the cluster that was asked is not the one that took the run


def check_time(seconds: float) -> None:
    """Raise ValueError for what is no moment in seconds since the epoch."""
    if not 0 <= seconds <= _LAST_YEAR:
        raise ValueError(f"{seconds:g} is no time in seconds since 1970")


Moment = Annotated[float, check_time]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job's state at one moment; ``reason`` says why it waits or how it ended; times in seconds since the epoch.

    ``fix``: what to do about it, where whoever saw it knew. ``missing_since``: when the run's cluster was first asked
    for it and did not know it, None while it does. ``certain``: of LOST, whether the run cannot turn up again.
    """

    state: str
    reason: str = ""
    exit_code: int | None = None
    started: Moment | None = None
    ended: Moment | None = None
    fix: str = ""
    missing_since: Moment | None = None
    certain: bool = False

    @property
    def is_refused(self) -> bool:
        """Whether the scheduler did not take it: it never had a job."""
        return self.reason.startswith(REFUSED)

    @property
    def is_end(self) -> bool:
        """Whether the run is over, as far as anybody knows. A state that is not known is not an end."""
        return self.state in ENDS

    @property
    def is_final(self) -> bool:
        """Whether it stays so: LOST gives way to what is seen later, unless it is certain."""
        return self.is_end and (self.state != LOST or self.certain)

    @property
    def is_doubtful(self) -> bool:
        """Whether it is what was seen last, or UNKNOWN, because the run's cluster did not answer or was not asked."""
        return self.reason.startswith((NO_ANSWER, ELSEWHERE))

    @property
    def is_elsewhere(self) -> bool:
        """Whether the cluster that was asked is not the one that took the run."""
        return self.reason.startswith(ELSEWHERE)

    @property
    def is_over(self) -> bool:
        """Whether waiting for more is in vain: an end, or a run that nobody is submitting."""
        return self.is_end or self.state == NOT_SUBMITTED


CONFIRM_AFTER = 60.0  # seconds after the first look that did not find a run
RETRY_AFTER = 600.0  # seconds after a run was lost: until then it may turn up again


def confirm_lost(seen: JobState | None, state: JobState, now: float) -> JobState:
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
    if now - since >= CONFIRM_AFTER:
        return replace(state, started=before.started, ended=now, missing_since=since)
    return replace(before, reason=f"{state.reason}; llmb looks again in a minute", missing_since=since)


def may_be_retried(state: JobState, now: float) -> bool:
    """Whether another attempt after ``state`` cannot meet the one before any more."""
    return state.is_final or not state.is_end or not 0 <= now - (state.ended or 0.0) < RETRY_AFTER
