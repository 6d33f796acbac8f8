# SPDX-License-Identifier: Apache-2.0
"""The one tree of errors: what is wrong, where, and the fix.

A ``code`` names the kind of error (``workload-unknown``): program flow and tests depend on codes,
keys, values and places, never on the wording of a message.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

RUN_FAILED = 3  # exit code: a run failed, or a verdict is FAIL or INVALID
INTERRUPTED = 130  # exit code: Ctrl-C


class LlmbError(Exception):
    """An error that the user can fix. It ends the command with ``exit_code``.

    ``hint`` is the fix, and ``code`` the kind of error, in lower case with hyphens. ``key`` and
    ``value`` what it is about, such as an option or a configuration key and what was given for it.
    Any other exception that reaches the command line is a bug and keeps its traceback.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str = "",
        key: str = "",
        value: object = None,
    ) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint
        self.code, self.key, self.value = code, key, value


class UsageError(LlmbError):
    """Wrong usage or input: nothing was done (exit code 2)."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong, at one place. ``code``, ``key`` and ``value`` are as in
    ``LlmbError``.
    """

    message: str
    #: ``FILE:LINE`` or an option's name, or empty.
    place: str = ""
    hint: str | None = None
    code: str = ""
    key: str = ""
    value: object = field(default=None, hash=False)
    #: It is a fault of a plugin, not of the user.
    of_plugin: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class PluginError(LlmbError):
    """A plugin failed: ``value`` is its ``distribution:entry``, ``key`` its hook or the key of what
    it returned.

    ``reason`` is the message without the plugin's name. ``hint`` is for users, and ``fix`` for the
    plugin's author.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        hint: str | None = None,
        fix: str | None = None,
        code: str = "",
        key: str = "",
        value: str = "",
    ) -> None:
        super().__init__(message, hint=hint, code=code, key=key, value=value)
        self.reason, self.fix = reason or message, fix or hint


class InputFaults(UsageError):
    """All faults of one input. ``code`` is that of the first fault, unless given.

    Exit code 1 where all faults are of plugins, as the input may be right.
    """

    def __init__(self, faults: list[Fault], *, hint: str | None = None, code: str = "") -> None:
        first = faults[0] if faults else Fault(message="")
        text = "\n".join(str(fault) for fault in faults)
        super().__init__(text, hint=hint, code=code or first.code, key=first.key, value=first.value)
        self.faults = faults
        if faults and all(fault.of_plugin for fault in faults):
            self.exit_code = LlmbError.exit_code


class KeyFaultError(ValueError):
    """A value that a ``parse`` or ``__post_init__`` rejects, at key path ``path`` below the value
    being read.

    ``value`` is what was given there. ``llmb.core.typed`` fills it in where it is None.
    """

    def __init__(
        self,
        message: str,
        *path: Hashable,
        hint: str | None = None,
        code: str = "value-not-allowed",
        value: object = None,
    ) -> None:
        super().__init__(message)
        self.path, self.hint, self.code, self.value = path, hint, code, value

    def as_fault(self, place: str) -> Fault:
        """Return the fault at ``place``. Its key is the dotted path."""
        return Fault(
            message=str(self),
            place=place,
            hint=self.hint,
            code=self.code,
            key=".".join(map(str, self.path)),
            value=self.value,
        )


def as_fault(error: LlmbError, place: str = "") -> Fault:
    """Return ``error`` as a fault at ``place``, with its hint, code, key and value."""
    return Fault(
        message=error.message,
        place=place,
        hint=error.hint,
        code=error.code,
        key=error.key,
        value=error.value,
        of_plugin=isinstance(error, PluginError),
    )


def author_fault(error: LlmbError, place: str = "") -> Fault:
    """As ``as_fault`` for the author of a plugin: it names the plugin once, and what to change in
    it.
    """
    fault = as_fault(error, place)
    if not isinstance(error, PluginError):
        return fault
    return replace(fault, place=place or str(error.value), message=error.reason, hint=error.fix)


@contextmanager
def collected(faults: list[Fault]) -> Iterator[None]:
    """Add a UsageError raised within to ``faults``, so that the checks after it still run."""
    try:
        yield
    except InputFaults as error:
        faults += error.faults
    except UsageError as error:
        faults.append(as_fault(error))


@contextmanager
def os_errors(
    message: str, *, hint: str | None = None, code: str = "", key: str = "", value: object = None
) -> Iterator[None]:
    """Raise an OSError within as an LlmbError: ``message`` and the system's reason."""
    try:
        yield
    except OSError as error:
        raise LlmbError(
            f"{message}: {error.strerror}", hint=hint, code=code, key=key, value=value
        ) from error


class PreflightError(LlmbError):
    """Everything that pre-submission checks found (exit code 1)."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


def describe(error: LlmbError) -> str:
    """Return the text for ``error``: each fault with its hint, then the common hint.

    A hint that several faults share is printed once, below the first of them.
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
