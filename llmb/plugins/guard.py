# SPDX-License-Identifier: Apache-2.0
"""Runs a plugin's code: output goes to stderr, time is limited, failures name the plugin."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TextIO

from llmb.core import console
from llmb.core.call_time_limit import OverdueError, time_limit
from llmb.errors import KeyFaultError, LlmbError, PluginError, UsageError
from llmb.plugins import side_effects

if TYPE_CHECKING:
    from types import FrameType

TIMEOUT_VARIABLE, DEBUG_VARIABLE = "LLMB_PLUGIN_TIMEOUT", "LLMB_DEBUG"
LIMIT_SECONDS = 20.0  # plugins must be cheap, but a login node's file system may be slow
DEBUG_OPTION = "--debug"
SLOW_SECONDS = 2.0  # from here on, a call is named with its time, and when Ctrl-C comes
LONG_SECONDS = 5.0  # after which a call is named while it runs
REPORT = "report it to the plugin's maintainers"
_PRESSES = 3  # of Ctrl-C, after which the process ends although a plugin catches KeyboardInterrupt
_LONGEST = 300  # characters of an exception's message
_debug = False


def take_debug(arguments: Sequence[str]) -> None:
    """Show tracebacks of plugins in this process if a command line has ``--debug``."""
    global _debug
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    _debug = DEBUG_OPTION in words


def is_debug() -> bool:
    """Return True if tracebacks of plugins are shown: ``--debug``, or LLMB_DEBUG other than 0."""
    return _debug or os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0")


def allowed_seconds() -> float:
    """Return the seconds of an import or a hook: LLMB_PLUGIN_TIMEOUT, else 20.

    Raises UsageError.
    """
    text = os.environ.get(TIMEOUT_VARIABLE)
    if not text:
        return LIMIT_SECONDS
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < math.inf:
            return seconds
    raise UsageError(
        f"{TIMEOUT_VARIABLE}={text} is not a number of seconds",
        hint=f"export {TIMEOUT_VARIABLE}=60",
        code="value-not-allowed",
        key=TIMEOUT_VARIABLE,
        value=text,
    )


@contextmanager
def guarded(source: str, call: str, *, owner: str = "", limited: bool = True) -> Iterator[None]:
    """Around code of the plugin ``source``, in a hook or method called ``call``.

    What it prints goes to stderr, also that of its subprocesses. Raises PluginError for every
    exception, SystemExit and KeyboardInterrupt of its own included, and after the time limit unless
    ``limited`` is False. An LlmbError is for the user and passes through. Ctrl-C of the user is
    never taken for one of the plugin, and always arrives. ``owner``: the plugin's top module, for
    the place of the failure. A call that takes long is named while it runs, and on Ctrl-C. What it
    changed of this process is named after it.

    Only the main thread can be interrupted, and no code in C before it returns. A plugin that
    catches what interrupts it, again and again, ends the process.
    """
    seconds = allowed_seconds() if limited else None
    started = time.perf_counter()
    running = partial(_name_running, source, call, started)
    before = side_effects.state()
    with _output_to_stderr(), _noticing_ctrl_c(running) as pressed:
        try:
            if seconds is None:
                with _watched(running):
                    yield
            else:
                early = (LONG_SECONDS, running)
                with time_limit(seconds, lambda: _end(source, call), early=early):
                    yield
        except BaseException as error:
            if pressed or (isinstance(error, OverdueError) and seconds is None):
                raise
            if isinstance(error, LlmbError):
                raise
            raise as_plugin_error(error, source, call, owner, seconds) from error
        finally:
            side_effects.undo(source, call, before)
            if pressed:
                raise KeyboardInterrupt
    elapsed = time.perf_counter() - started
    if limited and elapsed > SLOW_SECONDS:
        text = f"plugin {source} is slow: {call} took {elapsed:.1f} s"
        console.warn_once(text, key=f"{source} {call}")


def as_plugin_error(
    error: BaseException, source: str, call: str, owner: str, seconds: float | None = None
) -> PluginError:
    """Return the error for a plugin's exception, or its interruption after ``seconds``.

    Prints the traceback with ``--debug``.
    """
    if is_debug():
        import traceback

        console.echo("".join(traceback.format_exception(error)), nl=False, err=True)
    if isinstance(error, KeyFaultError):
        return rejected(source, call, error, owner)
    debug = "" if is_debug() else f"{DEBUG_OPTION} shows the traceback"
    if isinstance(error, OverdueError):
        reason = f"{call} took more than {seconds:g} s{_place(error, owner)}"
        longer = f"{TIMEOUT_VARIABLE}={2 * (seconds or 0):g} allows more"
        return PluginError(
            f"plugin {source} was interrupted: {reason}",
            reason=reason,
            hint=_joined(debug, longer, REPORT),
            fix=_joined("do nothing here that takes long", longer, debug),
            code="plugin-timeout",
            key=call,
            value=source,
        )
    description = described(error, owner)
    return PluginError(
        f"plugin {source} failed in {call}: {description}",
        reason=f"{call}: {description}",
        hint=_joined(debug, REPORT),
        fix=_joined(f"correct {'the module' if call == 'import' else call}", debug),
        code="plugin-failed",
        key=call,
        value=source,
    )


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def wrong_answer(
    source: str, call: str, answer: object, expected: str, function: object
) -> PluginError:
    """The error for an ``answer`` of the hook ``function`` that is not of the ``expected`` kind."""
    place = place_of(function)
    reason = f"{call} returned {_short(repr(answer))}, not {expected}{place}"
    message, fix = f"plugin {source}: {reason}", f"return {expected}"
    return PluginError(
        message, reason=reason, hint=REPORT, fix=fix, code="answer-type", key=call, value=source
    )


def place_of(function: object) -> str:
    """Return `` (file:line)`` of a function or method, or "" for what is not written in Python."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


def rejected(source: str, call: str, error: KeyFaultError, owner: str = "") -> PluginError:
    """The error for a value that a plugin made in ``call`` and that cannot be right."""
    fault = error.as_fault("")
    subject = f"{call}: {fault.key}" if fault.key else call
    reason = f"{subject}: {fault.message}{_place(error, owner)}"
    hint, fix = fault.hint or REPORT, fault.hint or f"correct {fault.key or 'the value'} in {call}"
    message, key = f"plugin {source}: {reason}", fault.key or call
    return PluginError(
        message, reason=reason, hint=hint, fix=fix, code=error.code, key=key, value=source
    )


def described(error: BaseException, owner: str) -> str:
    """Return type and message of ``error`` in one line, and its place in the plugin."""
    kind, text = type(error).__name__, " ".join(str(error).split())
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{kind}: {error.msg} ({error.filename}:{error.lineno})"
    return (
        f"{kind}: {_short(text)}{_place(error, owner)}" if text else f"{kind}{_place(error, owner)}"
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _place(error: BaseException, owner: str) -> str:
    """Return `` (file:line)`` of the deepest frame in the plugin ``owner``, or ""."""
    place, trace = "", error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if owner and str(frame.f_globals.get("__name__")).partition(".")[0] == owner:
            place = f" ({frame.f_code.co_filename}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place


def is_from(error: BaseException, owner: str) -> bool:
    """Return True if code of the plugin ``owner``, its top module, raised ``error``."""
    return _place(error, owner) != ""


def _end(source: str, call: str) -> NoReturn:
    """End the process because a plugin cannot be interrupted.

    Its stdout is complete: the guard has flushed it.
    """
    text = (
        f"error: plugin {source} cannot be interrupted: {call} catches every exception, so this"
        " command ends\nhint: uninstall the plugin, and report it to its maintainers\n"
    )
    os.write(2, text.encode())
    os._exit(1)


def _name_running(source: str, call: str, started: float) -> None:
    """Say that a plugin is running. Safe in a handler of a signal and in any thread."""
    seconds = time.perf_counter() - started
    text = f"note: plugin {source} has been in {call} for {seconds:.0f} s\n"
    with suppress(OSError):
        os.write(2, text.encode(errors="replace"))


@contextmanager
def _watched(name_running: Callable[[], None]) -> Iterator[None]:
    """Call ``name_running`` once if the block takes long.

    A thread does, since a call to a scheduler may be in any thread, and in C code.
    """
    ended = threading.Event()

    def watch() -> None:
        if not ended.wait(LONG_SECONDS):
            name_running()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


@contextmanager
def _noticing_ctrl_c(name_running: Callable[[], None]) -> Iterator[list[bool]]:
    """Yield a list that gets an item for each Ctrl-C of the user in the block.

    The first one calls ``name_running`` if the block has taken a while.
    """
    started = time.perf_counter()
    presses = 0
    pressed: list[bool] = []
    before = (
        signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread()
        else None
    )
    if before is None or not callable(before):
        yield pressed
        return

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal presses
        presses += 1
        if presses == 1 and time.perf_counter() - started >= SLOW_SECONDS:
            name_running()
        try:
            before(number, frame)
        except KeyboardInterrupt:
            pressed.append(True)
            if len(pressed) >= _PRESSES:
                os.write(2, b"interrupted\n")
                os._exit(130)
            raise

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


class _Kept:
    """Standard output while plugins run, perhaps in several threads: the last one puts it back."""

    lock = threading.Lock()
    depth = 0
    stream: TextIO
    number: int | None


@contextmanager
def _output_to_stderr() -> Iterator[None]:
    """Redirect the block's standard output to standard error, also of C code and subprocesses."""
    with _Kept.lock:
        _Kept.depth += 1
        if _Kept.depth == 1:
            _flush(sys.stdout)
            _Kept.stream, sys.stdout = sys.stdout, sys.stderr
            _Kept.number = None
            with suppress(OSError):  # a closed descriptor
                _Kept.number = os.dup(1)
                os.dup2(2, 1)
    try:
        yield
    finally:
        with _Kept.lock:
            _Kept.depth -= 1
            if _Kept.depth == 0:
                _flush(_Kept.stream)  # a plugin may have kept it
                sys.stdout = _Kept.stream
                if _Kept.number is not None:
                    os.dup2(_Kept.number, 1)
                    os.close(_Kept.number)


def _flush(stream: TextIO) -> None:
    with suppress(OSError, ValueError):  # the command reports it when it prints next
        stream.flush()
