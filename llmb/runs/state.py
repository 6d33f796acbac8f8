# SPDX-License-Identifier: Apache-2.0
"""What a scheduler says of a job, in the words of Slurm, and which of them are ends."""

from __future__ import annotations

from dataclasses import dataclass

PENDING, RUNNING, UNKNOWN = "PENDING", "RUNNING", "UNKNOWN"
COMPLETED, FAILED, CANCELLED, TIMEOUT = "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"
LOST = "LOST"  # the machine or its scheduler no longer has the job, and it left no end
NOT_SUBMITTED = "NOT_SUBMITTED"  # recorded, and whoever was to submit it is gone

ENDS = frozenset(
    {COMPLETED, FAILED, CANCELLED, TIMEOUT, LOST, "BOOT_FAIL", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
     "REVOKED"}
)  # fmt: skip
# Slurm's other words: those of a job that has not started, or is to start again, and those of one that has.
WAITING = frozenset(
    {PENDING, "CONFIGURING", "EXPEDITING", "LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED",
     "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)  # fmt: skip
ACTIVE = frozenset(
    {RUNNING, "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED", "UPDATE_DB"}
)  # fmt: skip
KNOWN = ENDS | WAITING | ACTIVE
# What the machines did to a job, not the job to itself: worth another attempt as it is.
RETRIABLE = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL", LOST})
REFUSED = "not submitted: "  # so begins the reason of a run that never had a job
NEXT = "it is next"  # the reason of the first that waits, where one job runs after another
NO_ANSWER = "no answer: "  # a reason that begins so: the state is an old one, as the cluster did not say


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job's state at one moment; ``reason`` says why it waits or how it ended; times in seconds since the epoch.

    ``cure``: what to do about it, where whoever saw it knew.
    """

    state: str
    reason: str = ""
    exit_code: int | None = None
    started: float | None = None
    ended: float | None = None
    cure: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether the scheduler did not take it: it never had a job."""
        return self.reason.startswith(REFUSED)

    @property
    def is_end(self) -> bool:
        """Whether it stays so. A state that is not known is not an end."""
        return self.state in ENDS

    @property
    def is_doubtful(self) -> bool:
        """Whether it is what was seen last, or UNKNOWN, because the cluster did not answer."""
        return self.reason.startswith(NO_ANSWER)

    @property
    def is_over(self) -> bool:
        """Whether waiting for more is in vain: an end, or a run that nobody is submitting."""
        return self.is_end or self.state == NOT_SUBMITTED
