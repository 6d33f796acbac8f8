# SPDX-License-Identifier: Apache-2.0
"""A local run's script, the value that its runner executes as JSON, and its ranks as processes:
start, wait, kill.
"""

import contextlib
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue

from llmb.contract.launch import Launch, StagedFile, Stamp
from llmb.core import files, shell, typed
from llmb.core.process import ProcessId, kill_marked
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb.kit import bashscript, rank_command

MARK = "LLMB_RUN_ID"  # in the environment of every process of a run
_START = Path(__file__).with_name("start_rank.py")
_PORTS = range(20000, 30000)  # as on Slurm; below the system's own
_TRIES = 50
_SWEEP = 5.0  # seconds
_TOGETHER = 0.2  # seconds
# Signals of a rank that aborts because another has gone, or that llmb ended.
_NOT_A_CAUSE = (signal.SIGABRT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The task of the runner: write ``files`` into ``work``, then start ``argv`` for each rank.

    ``environment`` overrides the few variables that every job has. ``secrets`` are names. The
    script never contains their values. ``time_limit`` in seconds.
    """

    schema_version: int = 1
    id: str
    name: str
    ranks: int
    argv: tuple[str, ...]
    environment: dict[str, str]
    secrets: tuple[str, ...]
    time_limit: int
    #: Seconds that ranks may run on after one has failed, and again after SIGTERM.
    grace: float
    directory: str
    work: str
    log: str
    batch_log: str
    programs: str
    files: tuple[StagedFile, ...]
    #: The job's ranks if one process starts them all, None for ``ranks``.
    world: int | None = None


def make_script(launch: Launch, stamp: Stamp, *, cpus: int, programs: str, grace: float) -> Script:
    """The script of ``launch`` for a machine with ``cpus``. ``programs``: the folder of the staged
    ones. Pure.
    """
    work = stamp.work(launch.name)
    python = f"{launch.venv or bashscript.NO_VENV}/bin/python"
    ranks = launch.ranks_per_node
    started = rank_command.mpirun(ranks, launch.venv) if launch.start == "mpi" else ()
    wrappers = [word for wrapper in launch.wrappers for word in wrapper.argv]
    return Script(
        id=stamp.id,
        name=launch.name,
        ranks=ranks if launch.start == "ranks" else 1,
        world=ranks if launch.start != "ranks" else None,
        argv=(*started, *wrappers, *rank_command.rank_words(launch, python)),
        environment={
            "OMP_NUM_THREADS": str(max(1, cpus // ranks)),
            "PYTHONUNBUFFERED": "1",  # so that the log has all output of a rank that was killed
            **launch.environment,
            "PYTHONPATH": bashscript.python_path(launch, programs),
        },
        secrets=launch.secrets,
        time_limit=launch.time_limit,
        grace=grace,
        directory=stamp.directory,
        work=work,
        log=f"{work}/log-{launch.name}.out",
        batch_log=f"{work}/sbatch_{launch.name}.out",
        programs=programs,
        files=launch.files,
    )


def to_text(script: Script) -> str:
    """The text of a script, which ``read_script`` reads."""
    return files.to_json(typed.to_data(script))


def read_script(path: Path) -> Script:
    """The script in a file. Raises LlmbError when the file is missing or invalid."""
    if (script := typed.read_json(Script, path)) is None:
        message = f"the script {path} does not exist"
        raise LlmbError(
            message, hint="submit the job again", code="script-missing", value=str(path)
        )
    return script


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """A rank's end: ``code`` is its exit code, or minus the number of the signal that killed it."""

    rank: int
    code: int

    @property
    def was_killed(self) -> bool:
        """Return True if a crash, or a signal from outside, ended it."""
        return self.code < 0 and -self.code not in _NOT_A_CAUSE

    @property
    def shell_code(self) -> int:
        """The exit code as a shell gives it: 128 plus the signal's number for a rank that was
        killed.
        """
        return self.code if self.code >= 0 else 128 - self.code

    def __str__(self) -> str:
        if self.code >= 0:
            return f"rank {self.rank} ended with exit code {self.code}"
        return f"rank {self.rank} was killed by signal {-self.code} ({_signal_name(-self.code)})"


class Ranks:
    """The ranks of one run."""

    def __init__(self, script: Script) -> None:
        self.codes: list[int | None] = [None] * script.ranks
        self._script = script
        self._ended: SimpleQueue[Exit] = SimpleQueue()
        self._processes: list[shell.Popen[bytes]] = []

    def start(self, base: Mapping[str, str]) -> list[ProcessId]:
        """Start all ranks. The script's environment overrides ``base``. Call this in the main
        thread.
        """
        script, port = self._script, free_port()
        environments = (rank_environment(script, rank, port) for rank in range(script.ranks))
        return [
            self._start(rank, {**base, **script.environment, **environment})
            for rank, environment in enumerate(environments)
        ]

    def _start(self, rank: int, environment: dict[str, str]) -> ProcessId:
        script = self._script
        argv = [sys.executable, "-I", "-S", str(_START), str(os.getpid()), *script.argv]
        process = shell.spawn(
            argv, env=environment, cwd=Path(script.work), log=Path(script.log), session=True
        )
        self._processes.append(process)
        identity = ProcessId.of(process.pid)
        # A thread for each rank tells which failed first: the others often fail because of it.
        threading.Thread(target=self._wait, args=(rank, process), daemon=True).start()
        return identity

    def _wait(self, rank: int, process: shell.Popen[bytes]) -> None:
        self._ended.put(Exit(rank=rank, code=process.wait()))

    @property
    def are_running(self) -> bool:
        """Return True if any rank has not ended yet, as far as ``next_exit`` has returned them."""
        return None in self.codes

    def next_exit(self, timeout: float) -> Exit | None:
        """The next rank that ends within ``timeout`` seconds, or None when there is none."""
        try:
            ended = self._ended.get(timeout=timeout)
        except Empty:
            return None
        self.codes[ended.rank] = ended.code
        return ended

    def cause(self, first: Exit) -> Exit:
        """The failure that caused ``first``: ranks that fail because one was killed may come
        first.
        """
        deadline = time.monotonic() + _TOGETHER
        cause = first
        while not cause.was_killed and self.are_running:
            # 0: what has ended already
            ended = self.next_exit(max(0.0, deadline - time.monotonic()))
            if ended is None:
                break
            cause = ended if ended.was_killed else cause
        return cause if cause.was_killed else self._killed() or cause

    def _killed(self) -> Exit | None:
        """A rank that was killed and that ``next_exit`` has not returned yet: its thread may not
        have run.
        """
        for rank, process in enumerate(self._processes):
            ended = Exit(rank=rank, code=_code(process.pid))
            if self.codes[rank] is None and ended.was_killed:
                return ended
        return None

    def wait(self, seconds: float) -> None:
        """Wait for all ranks, up to ``seconds``."""
        deadline = time.monotonic() + seconds
        while self.are_running and (seconds_left := deadline - time.monotonic()) > 0:
            self.next_exit(seconds_left)

    def end(self, grace: float) -> None:
        """End what still runs by SIGTERM, after ``grace`` seconds by SIGKILL, then every process
        that they started.
        """
        self._signal(signal.SIGTERM)
        self.wait(grace)
        self._signal(signal.SIGKILL)
        sweep(self._script.id)
        self.wait(_SWEEP)

    def _signal(self, number: signal.Signals) -> None:
        for process, code in zip(self._processes, self.codes, strict=False):
            if code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)


def _code(pid: int) -> int:
    """The code, as in ``Exit``, of a child that has ended and was not waited for, or 0 for any
    other.
    """
    if not hasattr(os, "waitid"):  # not on every system
        return 0
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    if ended is None:
        return 0
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def rank_environment(script: Script, rank: int, port: int) -> dict[str, str]:
    """The variables that identify a rank: torchrun's names, and the names that wrappers use on
    every cluster.
    """
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(script.world or script.ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(script.world or script.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "LLMB_RANK": str(rank),
        "LLMB_NODE_RANK": "0",
        "LLMB_LOCAL_RANK": str(rank),
        MARK: script.id,
    }


def free_port() -> int:
    """A TCP port of this machine that no process listens on.

    The ranks listen seconds later, so it is outside the range that the system gives to new
    connections.
    """
    for port in (*random.sample(_PORTS, _TRIES), 0):  # 0: any free one
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise LlmbError(
        "no TCP port is free on this machine", hint="ss -tan lists the ports in use", code="no-port"
    )


def sweep(run_id: str) -> None:
    """Kill every process of this user that belongs to the run, by the mark in its environment."""
    kill_marked(MARK, run_id)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return "a real-time signal"
