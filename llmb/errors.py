# SPDX-License-Identifier: Apache-2.0
"""The one tree of errors: what went wrong, where, and the cure."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class LlmbError(Exception):
    """Something failed that the user can mend; ends the command with ``exit_code``.

    ``hint`` is the cure. Any other exception that reaches the command line is a bug and keeps its traceback.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(LlmbError):
    """Wrong usage or wrong input: nothing was done (exit code 2)."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing wrong at one place: ``place`` is ``file:line`` or the name of an option, empty if there is none."""

    message: str
    place: str = ""
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class InputFaults(UsageError):
    """Several faults of one input, all of them told at once."""

    def __init__(self, faults: list[Fault], *, hint: str | None = None) -> None:
        super().__init__("\n".join(str(fault) for fault in faults), hint=hint)
        self.faults = faults


@contextmanager
def collected(faults: list[Fault]) -> Iterator[None]:
    """Add what a UsageError within says to ``faults``, so that what comes after it is looked at too."""
    try:
        yield
    except InputFaults as error:
        faults += error.faults
    except UsageError as error:
        faults.append(Fault(message=error.message, hint=error.hint))


class PreflightError(LlmbError):
    """What stands in the way of a submission, all faults at once (exit code 1)."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


def describe(error: LlmbError) -> str:
    """The text that the one printer shows for ``error``: each fault with its hint, then the common hint.

    A hint that several faults share stands once, below the first of them.
    """
    faults = getattr(error, "faults", None) or [Fault(message=error.message)]
    lines: dict[str, None] = {}
    for fault in faults:
        lines[f"error: {fault}"] = None
        if fault.hint:
            lines[f"hint: {fault.hint}"] = None
    if error.hint:
        lines[f"hint: {error.hint}"] = None
    return "\n".join(lines)
