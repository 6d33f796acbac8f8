# SPDX-License-Identifier: Apache-2.0
"""The doctor: what this machine and its cluster have and lack for each cluster type, with fixes."""

from dataclasses import dataclass
from typing import Literal

from llmb.errors import Fault, LlmbError

LOCAL, SLURM, RUNAI = "local", "slurm", "runai"
ALL = (LOCAL, SLURM, RUNAI)

State = Literal["ok", "missing", "wrong", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check and its result; ``found`` describes what there is, ``fix`` what to do about it.

    ``needed_by`` has the cluster types that require it: where it is ``missing`` or ``wrong``, the command ends with 1
    for those.
    """

    check: str
    state: State
    found: str
    needed_by: tuple[str, ...] = ()
    fix: str | None = None


def wrong(check: str, error: LlmbError, needed_by: tuple[str, ...]) -> Finding:
    """A finding for something invalid: every fault of ``error``, with its fixes."""
    faults = getattr(error, "faults", None) or [Fault(message=error.message)]
    fixes = dict.fromkeys(hint for hint in (*(fault.hint for fault in faults), error.hint) if hint)
    return Finding(
        check=check, state="wrong", found="; ".join(map(str, faults)), needed_by=needed_by, fix="; ".join(fixes) or None
    )


def finding(check: str, fault: str | None, found: str, needed_by: tuple[str, ...], fix: str | None) -> Finding:
    """``ok`` with ``found`` if ``fault`` is None; else ``missing`` where a cluster type needs it, or a ``warning``."""
    if fault is None:
        return Finding(check=check, state="ok", found=found, needed_by=needed_by)
    return Finding(check=check, state="missing" if needed_by else "warning", found=fault, needed_by=needed_by, fix=fix)
