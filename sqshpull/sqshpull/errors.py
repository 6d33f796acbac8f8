# SPDX-License-Identifier: Apache-2.0
"""The errors of sqshpull: each has a message, a hint with the fix, and a code for its kind."""

from collections.abc import Iterator
from contextlib import contextmanager

# Settings as hints name them: by the options of the command. A program with other names for them
# replaces these texts in messages and hints.
OTHER_FILE = "another file (-o FILE)"
OTHER_CACHE = "--cache DIR for the layers"
ALLOW_HTTP = "give --insecure HOST"
CA_BUNDLE = "--ca-bundle FILE"
MIRROR = "--mirror"

INTERRUPTED = 130  # exit code: Ctrl-C


class PullError(Exception):
    """An error that the user can fix. Any other exception is a bug, or the caller's own.

    ``code`` is the kind of error, in lower case with hyphens. ``key`` and ``value`` are what it is
    about: a host, a file, an option, and what was found or given there.
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


class PullInputError(PullError):
    """Wrong usage or input: nothing was done (exit code 2)."""

    exit_code = 2


class PullStoppedError(PullError):
    """The caller's ``stop`` interrupted the work."""

    exit_code = INTERRUPTED


@contextmanager
def os_errors(message: str, *, hint: str | None = None, code: str, key: str) -> Iterator[None]:
    """Raise an OSError within as a PullError: ``message`` and the system's reason."""
    try:
        yield
    except OSError as error:
        raise PullError(f"{message}: {error.strerror}", hint=hint, code=code, key=key) from error


def describe(error: PullError) -> str:
    """Return the lines to print for ``error``."""
    return f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
