# SPDX-License-Identifier: Apache-2.0
"""What the doctor finds: one thing that is there or lacks, which cluster types need it, and the fix."""

from dataclasses import dataclass
from typing import Literal

from llmb.errors import Fault, LlmbError

LOCAL, SLURM, RUNAI = "local", "slurm", "runai"
ALL = (LOCAL, SLURM, RUNAI)

State = Literal["ok", "missing", "wrong", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at; ``found`` says what there is, ``fix`` what to do where it is not as it should be.

    ``needed_by``: the cluster types that cannot do without it; one that is ``missing`` or ``wrong`` ends the command
    with 1 for those.
    """

    check: str
    state: State
    found: str
    needed_by: tuple[str, ...] = ()
    fix: str | None = None


def wrong(check: str, error: LlmbError, needed_by: tuple[str, ...]) -> Finding:
    """A thing that is there and cannot be used: every fault of ``error``, and the fixes."""
    faults = getattr(error, "faults", None) or [Fault(message=error.message)]
    fixes = dict.fromkeys(hint for hint in (*(fault.hint for fault in faults), error.hint) if hint)
    return Finding(
        check=check,
        state="wrong",
        found="; ".join(map(str, faults)),
        needed_by=needed_by,
        fix="; ".join(fixes) or None,
    )


def finding(check: str, fault: str | None, found: str, needed_by: tuple[str, ...], fix: str | None) -> Finding:
    """What ``found`` says where there is no ``fault``; else the fault, missing where a cluster type needs it."""
    if fault is None:
        return Finding(check=check, state="ok", found=found, needed_by=needed_by)
    return Finding(check=check, state="missing" if needed_by else "warning", found=fault, needed_by=needed_by, fix=fix)
