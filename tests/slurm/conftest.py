# SPDX-License-Identifier: Apache-2.0
"""Real Slurm clusters for the tests, with and without accounting, and install directories that
point at them.
"""

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.builtin.slurm.commands import Client
from llmb.builtin.slurm.poll import Memory
from llmb.builtin.slurm.slurm_cluster import SlurmCluster
from llmb.contract import record
from llmb.contract.launch import Launch, Program
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import COMPLETED, ENDS, JobState
from llmb.core import files
from llmb.core.process import ProcessId
from llmb.kit import programs
from llmb.plan.config_layers import load_config
from llmb.run import store
from llmb_installer.cluster_types import all_types
from llmb_testing.job import SMALLEST_JOB
from llmb_testing.slurm import Shape, SlurmKit, missing_packages

PATIENCE = 180.0  # seconds until a test gives up
# seconds, the time limit of jobs: too long for any test to reach, even on a busy machine
LIMIT = 1200


def _need(*, accounting: bool) -> None:
    if missing := missing_packages(accounting=accounting):
        pytest.skip(
            f"no real Slurm here: apt-get install --no-install-recommends {' '.join(missing)}"
        )


def _kit(shape: Shape) -> Iterator[SlurmKit]:
    _need(accounting=shape.accounting)
    with SlurmKit(shape) as kit:
        yield kit


@pytest.fixture(scope="session")
def shared_kit() -> Iterator[SlurmKit]:
    """Four nodes of eight pretended GPUs with accounting."""
    yield from _kit(Shape())


@pytest.fixture(scope="session")
def shared_bare_kit() -> Iterator[SlurmKit]:
    """Two nodes without accounting; the controller forgets jobs soon, and commands do not wait for
    it long.
    """
    yield from _kit(Shape(nodes=2, accounting=False, min_job_age=2, message_timeout=5))


@pytest.fixture
def kit(shared_kit: SlurmKit) -> SlurmKit:
    """The cluster with accounting, idle and complete."""
    return _fresh(shared_kit)


@pytest.fixture
def bare_kit(shared_bare_kit: SlurmKit) -> SlurmKit:
    """The cluster without accounting, idle and complete."""
    return _fresh(shared_bare_kit)


def _fresh(kit: SlurmKit) -> SlurmKit:
    kit.resume("slurmctld")
    kit.resume("slurmdbd")
    kit.start()
    kit.run("scancel", "--full", f"--user={kit.location.user}")
    wait_until(kit.is_empty, lambda: f"an empty queue: {kit.run('squeue')}")
    return kit


def wait_until(
    condition: Callable[[], Any], what: Callable[[], str] | str, seconds: float = PATIENCE
) -> Any:
    """Wait until ``condition`` is true, however slow the machine, and return its value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.1)
    return found


@dataclass
class Site:
    """An install directory for a cluster. Tests use llmb-run or the methods of the cluster type."""

    kit: SlurmKit
    install: Path
    command: Callable[..., subprocess.CompletedProcess[str]]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def config(self) -> ClusterConfig:
        return load_config(self.install, {}, cluster_types=all_types)[0]

    def llmb(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the real llmb-run here."""
        return self.command(
            *arguments, "--install", self.install, **{**self.kit.environ, **variables}
        )

    def cluster(
        self, *, ask_seconds: float = 60.0, environ: dict[str, str] | None = None
    ) -> SlurmCluster:
        """The cluster as llmb-run creates it for following runs, with long timeouts."""
        client = Client(
            environ={**os.environ, **self.kit.environ, **(environ or {})},
            passed=self.config.pass_environment,
            ask_seconds=ask_seconds,
        )
        return SlurmCluster(
            config=self.config,
            client=client,
            digest=programs.digest(),
            knows_segment=False,
            memory=Memory(is_patient=True),
        )

    def launch(self, program: str, /, **changes: Any) -> Launch:
        """A launch whose ranks each run the Python text ``program``."""
        script = self.install / f"program{next(self.numbers)}.py"
        script.write_text(program)
        made = Launch(
            name="job",
            nodes=1,
            ranks_per_node=1,
            time_limit=LIMIT,
            program=Program(script=str(script)),
            venv=str(self.install / "venv"),
            gpu_type="h100",
        )
        return replace(made, **changes)

    def record(self, launch: Launch) -> RunRecord:
        """A recorded run that is not submitted yet."""
        now = time.time()
        stamp = store.new_directory(self.config.experiments("w"), launch.name, int(now))
        run = RunRecord(
            id=stamp.id,
            created=now,
            llmb_version="0",
            cluster_type="slurm",
            directory=stamp.path,
            job=SMALLEST_JOB,
            launch=launch,
            script_name="launch",
            submitter=ProcessId.current(),
        )
        record.save(run)
        files.write_text(run.script, self.cluster().render(launch, stamp))
        return run

    def submit(
        self, program: str, /, *, cluster: SlurmCluster | None = None, **changes: Any
    ) -> RunRecord:
        """Record and submit a run of ``program``."""
        run = self.record(self.launch(program, **changes))
        run = run.submitted((cluster or self.cluster()).submit(run))
        record.save(run)
        return run

    def poll(self, run: RunRecord) -> JobState:
        return self.cluster().poll([run])[run.id]

    def reaches(
        self, run: RunRecord, *states: str, cluster: SlurmCluster | None = None
    ) -> JobState:
        """Wait until the run is in one of ``states`` (default: ended)."""
        asked = cluster or self.cluster()
        wanted = (lambda state: state.state in states) if states else (lambda state: state.is_end)

        def look() -> JobState | None:
            state = asked.poll([run])[run.id]
            return state if wanted(state) else None

        found: JobState = wait_until(look, lambda: f"{states or 'the end'} of {self.all_of(run)}")
        return found

    def ends(
        self, run: RunRecord, word: str = COMPLETED, *, cluster: SlurmCluster | None = None
    ) -> JobState:
        """Wait for the run's end, which must be ``word``."""
        end = self.reaches(run, cluster=cluster)
        assert end.state == word, f"{end}; {self.all_of(run)}"
        return end

    def all_of(self, run: RunRecord) -> str:
        """Everything about a run, for messages of failing tests."""
        logs = {path.name: path.read_text() for path in (run.log, run.batch_log) if path.exists()}
        return f"{run.id}: {self.poll(run)}; {logs}; {self.kit.run('squeue', '--states=all')}"

    def arrives(self, run: RunRecord, cluster: SlurmCluster) -> str:
        """Wait for the job id of a run that was submitted while the controller did not answer."""
        found: dict[str, str] = wait_until(
            lambda: cluster.find([run]), lambda: f"the arrival of {self.all_of(run)}"
        )
        return found[run.id]

    def waits_for(self, run: RunRecord, *reasons: str, cluster: SlurmCluster) -> None:
        """Wait until the run's reason is one of ``reasons``."""
        wait_until(
            lambda: cluster.poll([run])[run.id].reason in reasons,
            lambda: f"{reasons} of {self.all_of(run)}",
        )

    def one_waits_for(self, runs: list[RunRecord], reason: str) -> None:
        """Wait until one of ``runs`` has the reason ``reason``; Slurm chooses which."""
        cluster = self.cluster()
        wait_until(
            lambda: any(state.reason == reason for state in cluster.poll(runs).values()),
            lambda: f"{reason} of one of {[self.all_of(run) for run in runs]}",
        )

    def begins(self, run: RunRecord) -> None:
        """Wait until the run's script has started, which is after RUNNING."""
        wait_until((run.place / "scheduler_id").exists, lambda: f"the script of {self.all_of(run)}")

    def says(self, run: RunRecord, text: str) -> None:
        """Wait until ``text`` is in the run's logs, which may be later than its end in Slurm."""
        logs = (run.log, run.batch_log)
        wait_until(
            lambda: any(text in log.read_text() for log in logs if log.exists()),
            lambda: f"'{text}' in the logs of {self.all_of(run)}",
        )

    def forgets_its_id(self, run: RunRecord) -> None:
        """Remove the file with the job id that the run's script wrote, when the script no longer
        needs it.
        """
        wait_until(run.log.exists, lambda: f"the ranks of {self.all_of(run)}")
        (run.place / "scheduler_id").unlink()

    def is_accounted(self, run: RunRecord) -> None:
        """Wait until accounting has the run's end, which takes seconds."""
        argv = (
            "sacct",
            "--noheader",
            "--parsable2",
            "--allocations",
            f"--jobs={run.scheduler_id}",
            "--format=State,JobName%99",
        )

        def ended() -> bool:
            state, _, name = self.kit.run(*argv).strip().partition("|")
            return name.endswith(run.id) and state.split(" ")[0] in ENDS

        wait_until(ended, lambda: f"accounting to have {self.all_of(run)}")

    def is_not_in_the_queue(self, run: RunRecord) -> None:
        """Wait until the run is not in the queue."""
        known = ("squeue", "--noheader", "--format=%i")
        wait_until(
            lambda: run.scheduler_id not in self.kit.run(*known).split(),
            lambda: f"the end of {self.all_of(run)}",
        )

    def comes_to_rest(self, seconds: float = PATIENCE) -> None:
        """Wait until no job is pending, running or completing."""
        wait_until(self.kit.is_empty, lambda: f"an empty queue: {self.kit.run('squeue')}", seconds)

    def text(self, run: RunRecord, name: str) -> str:
        """Wait for the file ``name`` in the working folder of the ranks, and return its text."""
        path = run.work / name
        wait_until(
            lambda: path.exists() and path.stat().st_size, lambda: f"{path} of {self.all_of(run)}"
        )
        return path.read_text(encoding="utf-8")


def _make(kit: SlurmKit, folder: Path, command: Callable[..., Any], **keys: Any) -> Site:
    (folder / "venv/bin").mkdir(parents=True)
    (folder / "venv/bin/python").symlink_to(sys.executable)
    # complete: nothing is missing
    (folder / "venv/pyvenv.cfg").write_text("include-system-site-packages = true\n")
    slurm = {"container": "none", "gpu": {"partition": "gpu", "gres": 8}, **keys.pop("slurm", {})}
    names = ("pretrain_nemotron4", "pretrain_llama3.1", "pretrain_nemotronh")
    venv = keys.pop("venv", str(folder / "venv"))
    config = {
        "schema_version": 2,
        "cluster_type": "slurm",
        "cluster_name": "kit",
        "gpu_type": "h100",
        "gpu_types": {"h100": {"gpus_per_node": 1}},
        "slurm": slurm,
        "workloads": {
            "installed": [*names],
            "config": {name: {"venv_path": venv} for name in names},
        },
        **keys,
    }
    (folder / "cluster_config.yaml").write_text(
        yaml.safe_dump(config, sort_keys=False, allow_unicode=True), "utf-8"
    )
    return Site(kit=kit, install=folder, command=command)


@pytest.fixture
def site_at(tmp_path: Path, llmb_run: Callable[..., Any]) -> Callable[..., Site]:
    """Creates install directories for a cluster; keywords are more keys of the configuration."""

    def make(kit: SlurmKit, name: str = "install", **keys: Any) -> Site:
        return _make(kit, tmp_path / name, llmb_run, **keys)

    return make


@pytest.fixture
def site(kit: SlurmKit, site_at: Callable[..., Site]) -> Site:
    """An install directory for the cluster with accounting."""
    return site_at(kit)


@pytest.fixture
def bare_site(bare_kit: SlurmKit, site_at: Callable[..., Site]) -> Site:
    """An install directory for the cluster without accounting."""
    return site_at(bare_kit, slurm={"gpu": {"partition": None, "gres": 8}})


@pytest.fixture
def fake_python(site: Site) -> Callable[[str], None]:
    """Replaces the environment's Python with a bash script, which the jobs of llmb-run then run.

    As telemetry, which runs beside the ranks with the same Python, it does nothing.
    """

    def put(text: str) -> None:
        path = site.install / "venv/bin/python"
        path.unlink()
        lines = (
            f"#!{shutil.which('bash')}",
            "[[ $* != *llmb_workloads.telemetry* ]] || exit 0",
            text,
        )
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        path.chmod(0o755)

    return put
