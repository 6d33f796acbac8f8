# SPDX-License-Identifier: Apache-2.0
"""What a scheduler says of a job, in the words of Slurm, and which of them are ends."""

from __future__ import annotations

from dataclasses import dataclass

PENDING, RUNNING, UNKNOWN = "PENDING", "RUNNING", "UNKNOWN"
COMPLETED, FAILED, CANCELLED, TIMEOUT = "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"
LOST = "LOST"  # the machine or its scheduler no longer has the job, and it left no end

ENDS = frozenset(
    {COMPLETED, FAILED, CANCELLED, TIMEOUT, LOST, "BOOT_FAIL", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
     "REVOKED"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job's state at one moment; ``reason`` says why it waits or how it ended; times in seconds since the epoch."""

    state: str
    reason: str = ""
    exit_code: int | None = None
    started: float | None = None
    ended: float | None = None

    @property
    def is_end(self) -> bool:
        """Whether it stays so. A state that is not known is not an end."""
        return self.state in ENDS
