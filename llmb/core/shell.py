# SPDX-License-Identifier: Apache-2.0
"""Starts processes, from argv lists, never from shell strings. The only module that does."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from llmb.core import parallel
from llmb.core.values import dataclass
from llmb.errors import LlmbError

Popen = subprocess.Popen
T = TypeVar("T")
U = TypeVar("U")
_LOOK = 0.2  # seconds between two looks at the output of a program that is watched
GRACE = 5.0  # seconds between SIGTERM and SIGKILL
WORTH_PROCESSES = 1000  # items of about a millisecond: fewer are done before processes have started


class TimedOutError(LlmbError):
    """A program did not end within its time limit."""


class StoppedError(LlmbError):
    """A program was stopped because the user interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The exit code and the output of a process."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    watch: Callable[[str, float], bool] | None = None,
) -> Completed:
    """Run a program and collect its output.

    ``timeout`` is in seconds, ``stdin`` is its standard input. Ctrl-C on the terminal does not
    reach it, so that a submission is completed. ``watch`` is called several times a second with
    the error output so far and the seconds since the start, and ends the program by returning
    True. Raises LlmbError if it cannot be started, TimedOutError after the timeout.
    """
    if watch is not None:
        return _run_watched(argv, watch, env=env, timeout=timeout, cwd=cwd)
    fed = stdin.encode(errors="replace")
    source: dict[str, Any] = {"input": fed} if fed else {"stdin": subprocess.DEVNULL}
    try:
        process = subprocess.run(
            argv,
            env=env,
            timeout=timeout,
            cwd=cwd,
            capture_output=True,
            check=False,
            bufsize=0,
            process_group=0,
            **source,
        )
    except OSError as error:
        raise _cannot_start(argv, error) from error
    except subprocess.TimeoutExpired as error:
        message = f"{argv[0]} did not answer within {timeout:g} s"
        raise TimedOutError(message, code="program-timeout", value=argv[0]) from error
    out, err = _text(process.stdout), _text(process.stderr)
    return Completed(argv=tuple(argv), code=process.returncode, out=out, err=err)


def _text(data: bytes) -> str:
    """Return the output of a program, with a newline at the end of each line."""
    return data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def _run_watched(
    argv: Sequence[str],
    watch: Callable[[str, float], bool],
    *,
    env: Mapping[str, str] | None,
    timeout: float | None,
    cwd: Path | None,
) -> Completed:
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            process_group=0,
        )
    except OSError as error:
        raise _cannot_start(argv, error) from error
    start, is_ending = time.monotonic(), False
    with process:
        try:
            while True:
                try:
                    out, err = process.communicate(timeout=_LOOK)
                    break
                except subprocess.TimeoutExpired as error:
                    seconds = time.monotonic() - start
                    if timeout is not None and seconds > timeout:
                        message = f"{argv[0]} did not answer within {timeout:g} s"
                        raise TimedOutError(
                            message, code="program-timeout", value=argv[0]
                        ) from error
                    printed = (error.stderr or b"").decode(errors="replace")
                    if not is_ending and watch(printed, seconds):
                        is_ending = True
                        with contextlib.suppress(ProcessLookupError):
                            os.killpg(process.pid, signal.SIGTERM)
        except BaseException:
            process.kill()
            raise
    return Completed(
        argv=tuple(argv),
        code=process.returncode,
        out=out.decode(errors="replace"),
        err=err.decode(errors="replace"),
    )


def run_logged(
    argv: Sequence[str],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stop: threading.Event | None = None,
    umask: int = -1,
    tick: Callable[[], None] | None = None,
) -> int:
    """Run a program, append its output to the file ``log``, and return its exit code.

    With ``stop``, Ctrl-C on the terminal does not reach it. ``tick`` is called several times a
    second until ``stop`` is set. Then its process group is ended and StoppedError is raised. Raises
    LlmbError if it cannot be started. ``umask``: its umask, ours if negative.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        try:
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                process_group=None if stop is None else 0,
                umask=umask,
            )
        except OSError as error:
            raise _cannot_start(argv, error) from error
    with process:
        try:
            return _wait(process, argv[0], stop, tick)
        except BaseException:
            process.kill()
            raise


def _wait(
    process: subprocess.Popen[bytes],
    name: str,
    stop: threading.Event | None,
    tick: Callable[[], None] | None,
) -> int:
    while True:
        try:
            return process.wait(None if stop is None else 0.1)
        except subprocess.TimeoutExpired:
            if stop is not None and stop.is_set():
                _end_group(process)
                raise StoppedError(f"{name} was stopped") from None
            if tick is not None:
                tick()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group, and kill them after GRACE seconds."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        os.killpg(process.pid, signal.SIGKILL)


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    log: Path,
    session: bool = False,
    umask: int = -1,
) -> subprocess.Popen[bytes]:
    """Start a program in the background with its output appended to ``log``, whose folder must
    exist.

    ``session`` detaches it, so that it survives the command, the terminal and a hang-up. ``umask``:
    its umask, ours if negative. Raises LlmbError if it cannot be started.
    """
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        message = f"{log} cannot be written: {error.strerror}"
        raise LlmbError(message, code="file-unwritable", value=str(log)) from error
    try:
        return subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=session,
            close_fds=True,
            umask=umask,
        )
    except OSError as error:
        raise _cannot_start(argv, error) from error
    finally:
        os.close(descriptor)


def reap(process: subprocess.Popen[bytes]) -> None:
    """Wait up to GRACE seconds for a process that is about to end, then ``let_go`` of it."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    let_go(process)


def let_go(process: subprocess.Popen[bytes]) -> None:
    """Stop tracking a process of ``spawn``, so that Python does not warn that it was not waited
    for.
    """
    if process.poll() is None:
        process.returncode = 0


def _cannot_start(argv: Sequence[str], error: OSError) -> LlmbError:
    if isinstance(error, FileNotFoundError) and error.filename == argv[0]:
        return LlmbError(
            f"there is no program '{argv[0]}' here", code="program-not-found", value=argv[0]
        )
    message = f"{argv[0]} cannot be started: {error.strerror}: {error.filename}"
    return LlmbError(message, code="program-not-started", value=argv[0])


def map_many(function: Callable[[T], U], items: Sequence[T]) -> list[U]:
    """``[function(item) for item in items]``, in several processes if there are many items.

    Function and items must be picklable. An exception of ``function`` is raised here.
    """
    count = min(parallel.processors(), 8)
    if len(items) < WORTH_PROCESSES or count == 1:
        return [function(item) for item in items]
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # Spawned, not forked: a fork would copy the locks of other threads.
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        return list(pool.map(function, items, chunksize=256))
