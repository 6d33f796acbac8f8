# SPDX-License-Identifier: Apache-2.0
"""The result of one check of the installer's doctor."""

from typing import Literal

from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError

State = Literal["ok", "missing", "wrong", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check and its result."""

    check: str
    state: State
    #: A description of what there is.
    found: str
    #: The cluster types that require it, set by llmb for a cluster type's ``examine``. If it is
    #: ``missing`` or ``wrong``, the doctor ends with 1 for them.
    needed_by: tuple[str, ...] = ()
    #: What to do about it.
    fix: str | None = None


def wrong(check: str, error: LlmbError, needed_by: tuple[str, ...]) -> Finding:
    """Return the finding for something invalid: every fault of ``error``, with its fixes."""
    faults = getattr(error, "faults", None) or [Fault(message=error.message)]
    fixes = dict.fromkeys(hint for hint in (*(fault.hint for fault in faults), error.hint) if hint)
    return Finding(
        check=check,
        state="wrong",
        found="; ".join(map(str, faults)),
        needed_by=needed_by,
        fix="; ".join(fixes) or None,
    )


def finding(
    check: str, fault: str | None, found: str, needed_by: tuple[str, ...], fix: str | None
) -> Finding:
    """Return ``ok`` without a ``fault``, else ``missing`` if a type needs it, or a ``warning``."""
    if fault is None:
        return Finding(check=check, state="ok", found=found, needed_by=needed_by)
    return Finding(
        check=check,
        state="missing" if needed_by else "warning",
        found=fault,
        needed_by=needed_by,
        fix=fix,
    )
