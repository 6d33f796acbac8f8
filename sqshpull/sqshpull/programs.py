# SPDX-License-Identifier: Apache-2.0
"""Starts other programs, from argv lists, never from shell strings. The only module that does."""

import contextlib
import fcntl
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqshpull.errors import PullError

WriteInput = Callable[[bytes | memoryview], None]
_PIPE = 1 << 20  # bytes in the pipe to a program that is fed
_GRACE = 5.0  # seconds for a program that is about to end


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOutput:
    """The exit code and the output of a program that ended."""

    code: int
    out: str
    err: str


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    stdin: str = "",
) -> ProgramOutput:
    """Run a program with the text ``stdin`` for at most ``timeout`` seconds; collect its output.

    Raises PullError if it cannot be started or does not end in time.
    """
    source: dict[str, Any] = {"input": stdin} if stdin else {"stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run(
            argv,
            env=env,
            timeout=timeout,
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            process_group=0,
            **source,
        )
    except OSError as error:
        raise _cannot_start(argv, error) from error
    except subprocess.TimeoutExpired as error:
        message = f"{argv[0]} did not answer within {timeout:g} s"
        raise PullError(message, code="program-timeout", value=argv[0]) from error
    return ProgramOutput(code=done.returncode, out=done.stdout, err=done.stderr)


def run_logged(argv: Sequence[str], log: Path, *, env: Mapping[str, str]) -> int:
    """Run a program, append its output to the file ``log``, and return its exit code.

    Raises PullError if it cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        try:
            process = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
            )
        except OSError as error:
            raise _cannot_start(argv, error) from error
    with process:
        try:
            return process.wait()
        except BaseException:
            process.kill()
            raise


@contextlib.contextmanager
def feed(argv: Sequence[str], log: Path) -> Iterator[tuple["subprocess.Popen[bytes]", WriteInput]]:
    """Run a program whose standard input the caller writes, with its output appended to ``log``.

    Yields the process, whose ``returncode`` is set after the context, and the function that
    writes. That raises BrokenPipeError if the program ends before it has read everything. An
    exception in the context kills the program. Raises PullError if it cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        try:
            process = subprocess.Popen(
                argv,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                process_group=0,  # the caller decides what Ctrl-C ends
            )
        except OSError as error:
            raise _cannot_start(argv, error) from error
    pipe = process.stdin
    assert pipe is not None
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # the user's limit for large pipes may be reached
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)

    def write(data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[pipe.write(rest) :]

    try:
        yield process, write
        pipe.close()
        process.wait()
    except BrokenPipeError:
        pipe.close()
        # It is about to end and to print the reason.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        process.kill()
        process.wait()
        raise
    except BaseException:
        process.kill()
        pipe.close()
        process.wait()
        raise


def _cannot_start(argv: Sequence[str], error: OSError) -> PullError:
    if isinstance(error, FileNotFoundError) and error.filename == argv[0]:
        message = f"there is no program '{argv[0]}' here"
        return PullError(message, code="program-not-found", value=argv[0])
    message = f"{argv[0]} cannot be started: {error.strerror}: {error.filename}"
    return PullError(message, code="program-not-started", value=argv[0])
