# SPDX-License-Identifier: Apache-2.0
"""Tests of two hosts that submit the same list to one cluster, from a network file system."""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmb.contract.schema import ClusterConfig
from llmb.run import store
from llmb_testing.network_files import SHIM
from llmb_testing.scheduler import Behaviour, Scheduler

pytestmark = pytest.mark.fault("network-files")

Start = Callable[..., "subprocess.Popen[str]"]
JOBS = 12


@pytest.fixture
def on_host(install: Path, tmp_path: Path, llmb_program: str) -> Iterator[Start]:
    """Starts llmb-run on a host of this name, whose files are those of a network file system."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root makes namespaces of hosts (util-linux)")
    (tmp_path / "shim").mkdir()
    (tmp_path / "shim" / "sitecustomize.py").write_text(SHIM)
    path = os.pathsep.join([str(tmp_path / "shim"), os.environ["PYTHONPATH"]])
    started: list[subprocess.Popen[str]] = []

    def start(host: str, *words: object) -> "subprocess.Popen[str]":
        named = ["unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh"]
        process = subprocess.Popen(
            [*named, llmb_program, *map(str, words), "--install", str(install)],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def jobs(install: Path, scheduler: Scheduler) -> Path:
    scheduler.behave(Behaviour(before=0.004, after=0.004))
    path = install / "jobs.txt"
    path.write_text(f"fake_small:\n('bf16', [8], {JOBS})\n")
    return path


def check_each_once(config: ClusterConfig, scheduler: Scheduler, count: int) -> None:
    runs, unreadable = store.all_runs(config)
    assert unreadable == []
    assert Counter(job.name for job in scheduler.jobs()) == Counter(run.id for run in runs)
    assert len(runs) == count


def test_two_hosts_that_resume_submit_the_list_once(
    on_host: Start, jobs: Path, scheduler: Scheduler, config: ClusterConfig
) -> None:
    commands = [on_host(host, "submit-all", jobs, "--resume") for host in ("one", "two")]
    for command in commands:
        output, _ = command.communicate(timeout=600)
        assert command.returncode == 0, output
        assert "Traceback" not in output
    check_each_once(config, scheduler, JOBS)


def test_two_hosts_that_submit_get_sessions_of_their_own(
    on_host: Start, jobs: Path, scheduler: Scheduler, config: ClusterConfig
) -> None:
    commands = [on_host(host, "submit-all", jobs) for host in ("one", "two")]
    for command in commands:
        output, _ = command.communicate(timeout=600)
        assert command.returncode == 0, output
    check_each_once(config, scheduler, 2 * JOBS)
    sessions = Counter(run.session.id for run in store.all_runs(config)[0] if run.session)
    assert sorted(sessions.values()) == [JOBS, JOBS]
