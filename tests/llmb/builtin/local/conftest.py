# SPDX-License-Identifier: Apache-2.0
"""Fixtures: real supervisors, runners and ranks with an empty state folder."""

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmb.builtin.local import journal, queue
from llmb.builtin.local.local_cluster import Hardware, LocalCluster
from llmb.builtin.local.queue import LOCK, LOG
from llmb.builtin.local.ranks import sweep
from llmb.contract import record
from llmb.contract.launch import Launch, Program, Stamp
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import COMPLETED, JobState
from llmb.core import files, locks
from llmb.core.process import ProcessId
from llmb.errors import LlmbError
from llmb.kit import programs
from llmb.run import store
from llmb_installer.cluster_types import all_types
from llmb_testing.job import SMALLEST_JOB

PATIENCE = 180.0  # seconds until a test gives up
# seconds, the time limit of runs: too long for any test to reach, even on a busy machine
LIMIT = 1200
JOB = replace(SMALLEST_JOB, gpu_type="cpu")


def wait_until(condition: Callable[[], Any], what: Callable[[], str] | str) -> Any:
    """Wait until ``condition`` is true, however slow the machine, and return its value."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {PATIENCE:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)
    return found


@dataclass
class Machine:
    """This machine with an empty queue. ``install`` is the first of its install directories."""

    root: Path
    environ: dict[str, str]
    runs: list[RunRecord] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def state(self) -> Path:
        return queue.state_folder(self.environ)

    @property
    def install(self) -> Path:
        return self.root / "install"

    @property
    def log(self) -> str:
        path = self.state / LOG
        return path.read_text() if path.exists() else "no supervisor yet"

    def cluster(self, install: str = "install", **changes: Any) -> LocalCluster:
        config = ClusterConfig(
            cluster_type="local",
            gpu_type="cpu",
            llmb_install=self.root / install,
            kind=all_types()["local"],
        )
        made = LocalCluster(
            config=config,
            environ=self.environ,
            found=Hardware(cpus=4, gpus=None),
            digest=programs.digest(),
            idle=0.3,
            grace=0.5,
        )
        return replace(made, **changes)

    def launch(
        self, program: str, /, *, ranks: int = 1, limit: int = LIMIT, **changes: Any
    ) -> Launch:
        """A launch whose ranks each run the Python text ``program``."""
        script = self.root / f"program{next(self.numbers)}.py"
        script.write_text(program)
        made = Launch(
            name="job",
            nodes=1,
            ranks_per_node=ranks,
            time_limit=limit,
            program=Program(script=str(script)),
            venv=str(self.root / "venv"),
            workload="pretrain_x",
        )
        return replace(made, **changes)

    def record(
        self, launch: Launch, *, cluster: LocalCluster | None = None, **changes: Any
    ) -> RunRecord:
        """A recorded run that is not submitted yet."""
        cluster = cluster or self.cluster()
        number = next(self.numbers)
        stamp = Stamp(
            id=store.new_id(),
            timestamp=str(number),
            directory=str(
                cluster.config.experiments("w") / launch.name / f"{launch.name}_{number}"
            ),
        )
        run = RunRecord(
            id=stamp.id,
            created=number,
            llmb_version="0",
            cluster_type="local",
            directory=Path(stamp.directory),
            job=JOB,
            launch=launch,
            script_name="launch.json",
            submitter=ProcessId.current(),
        )
        run = replace(run, **changes)
        (run.directory / launch.name).mkdir(parents=True)
        record.save(run)
        files.write_text(run.script, cluster.render(launch, stamp))
        self.runs.append(run)
        return run

    def submit(
        self, program: str, /, *, cluster: LocalCluster | None = None, **launch: Any
    ) -> RunRecord:
        """Record and submit a run of ``program``."""
        cluster = cluster or self.cluster()
        run = self.record(self.launch(program, **launch), cluster=cluster)
        assert cluster.submit(run) == run.id
        return run

    def poll(self, run: RunRecord) -> JobState:
        return self.cluster().poll([run])[run.id]

    def end(self, run: RunRecord) -> JobState:
        """Poll until the run has ended, and return its end."""
        wait_until(lambda: self.poll(run).is_end, lambda: f"the end of {self.all_of(run)}")
        return self.poll(run)

    def ends(self, run: RunRecord, word: str = COMPLETED) -> JobState:
        """Wait for the end of a run, which must be ``word``."""
        end = self.end(run)
        assert end.state == word, self.all_of(run)
        return end

    def all_of(self, run: RunRecord) -> str:
        """Everything about a run, for messages of failing tests."""
        logs = {path.name: path.read_text() for path in (run.log, run.batch_log) if path.exists()}
        return f"{run.id}: {self.poll(run)}; {logs}; {self.log}"

    def text(self, run: RunRecord, part: str) -> str:
        """Wait for the file ``part`` in the working folder of the ranks, and return its text."""
        path = run.work / part
        wait_until(path.exists, lambda: f"{part} of {self.all_of(run)}")
        return path.read_text()

    def ranks(self, run: RunRecord) -> list[int]:
        """Wait for the process ids of the ranks, which the runner records after it started them."""

        def started() -> list[int]:
            seen = journal.read(run.directory)
            return [] if seen is None else [rank.pid for rank in seen.ranks]

        found: list[int] = wait_until(started, lambda: f"the ranks of {self.all_of(run)}")
        return found

    def supervisor(self) -> psutil.Process:
        """Wait for the supervisor of the queue."""
        return psutil.Process(
            wait_until(
                lambda: locks.holder(self.state, LOCK), lambda: f"a supervisor; {self.log}"
            ).pid
        )

    @staticmethod
    def wait_until(condition: Callable[[], Any], what: Callable[[], str] | str) -> Any:
        """The function of this name."""
        return wait_until(condition, what)

    def supervisor_gone(self) -> None:
        """Wait until the queue has no supervisor."""
        wait_until(
            lambda: locks.holder(self.state, LOCK) is None,
            lambda: f"the supervisor to leave; {self.log}",
        )

    def runner(self, run: RunRecord) -> psutil.Process:
        """Wait for the runner of a run."""
        seen: journal.Journal = wait_until(
            lambda: journal.read(run.directory), lambda: f"the start of {self.all_of(run)}"
        )
        assert seen.runner is not None, seen
        return psutil.Process(seen.runner.pid)

    @staticmethod
    def gone(*pids: int) -> None:
        """Wait until none of these processes runs."""
        wait_until(
            lambda: not any(_runs(pid) for pid in pids),
            lambda: f"the end of {[*filter(_runs, pids)]}",
        )

    def close(self) -> None:
        """Kill everything that was started here, by process id."""
        for path in queue.entries(self.state):
            path.unlink(missing_ok=True)
        self._end(locks.holder(self.state, LOCK))
        for run in self.runs:
            with contextlib.suppress(LlmbError):  # its folder is gone, or its journal damaged
                # A runner that has not created its journal yet finds this one.
                if not journal.create(
                    run.directory, journal.Journal(id=run.id, end=journal.end_now("CANCELLED"))
                ):
                    self._end((journal.read(run.directory) or journal.Journal(id=run.id)).runner)
            sweep(run.id)

    def _end(self, owner: ProcessId | None) -> None:
        if owner is None or not owner.is_here or owner.pid == os.getpid():
            return
        if owner.is_alive():
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(owner.pid).kill()
            self.gone(owner.pid)


def _runs(pid: int) -> bool:
    """Whether the process runs. A zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine with an empty queue."""
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    base: Mapping[str, str] = {
        name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ
    }
    made = Machine(
        root=tmp_path,
        environ={**base, "LANG": "C.UTF-8", "LLMB_STATE_DIR": str(tmp_path / "state")},
    )
    yield made
    made.close()
