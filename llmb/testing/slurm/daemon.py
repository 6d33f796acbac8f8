# SPDX-License-Identifier: Apache-2.0
"""Daemons by their pid files: whether one runs, and ending it without ever signalling a stranger."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from llmb.errors import LlmbError

_END_SECONDS = 60.0


def process_of(pid_file: Path, name: str) -> psutil.Process | None:
    """The process whose number is in ``pid_file``, if it runs and is called ``name``; a zombie does not run."""
    try:
        process = psutil.Process(int(pid_file.read_text()))
        runs = _runs(process) and process.name().startswith(name)
    except (FileNotFoundError, ValueError, psutil.Error):
        return None
    return process if runs else None


def end(pid_file: Path, name: str) -> None:
    """End the daemon in order, and by force after a minute; nothing where it does not run."""
    process = process_of(pid_file, name)
    if process is not None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(LlmbError):  # not by the pid file, which goes first: munged and slurmctld write then
            wait_for(lambda: not _runs(process), _END_SECONDS, f"the end of {name}")
        if _runs(process):
            process.kill()
            wait_for(lambda: not _runs(process), _END_SECONDS, f"the end of {name}")
    pid_file.unlink(missing_ok=True)


def kill_with_steps(pid_file: Path, log: Path) -> None:
    """End a slurmd, the job steps that write to the same ``log``, and their ranks, as a node's failure would."""
    # Those first who would start others, or tell of their end.
    slurmd = process_of(pid_file, "slurmd")
    killed = [slurmd] if slurmd is not None else []
    _kill(killed)
    named = [step for step in psutil.process_iter(["name"]) if str(step.info["name"]).startswith("slurmstepd")]
    steps = [step for step in named if _has_open(step, log)]
    for step in steps:
        _signal(step.pid, signal.SIGSTOP)
    ranks = [rank for step in steps for rank in _children(step)]
    killed += [*steps, *ranks]
    _kill(killed)
    wait_for(lambda: not any(map(_runs, killed)), _END_SECONDS, "the end of a node's processes")
    pid_file.unlink(missing_ok=True)


def pause(pid_file: Path, name: str) -> None:
    """Stop a daemon where it is, so that it answers nobody."""
    if (process := process_of(pid_file, name)) is not None:
        process.suspend()


def resume(pid_file: Path, name: str) -> None:
    """Let a paused daemon go on."""
    if (process := process_of(pid_file, name)) is not None:
        process.resume()


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until ``condition`` holds. Raises LlmbError after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LlmbError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.05)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _has_open(process: psutil.Process, path: Path) -> bool:
    try:
        return any(opened.path == str(path) for opened in process.open_files())
    except psutil.Error:
        return False


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        _signal(process.pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
