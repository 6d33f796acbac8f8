# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of submission: the fake cluster of the test kits."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.plan.plan import make_plan
from llmb.plugins.loaded import Plugins
from llmb.plugins.loader import load_plugins
from llmb.run import store
from llmb.run.prepare import Prepared, prepare
from llmb.run.submit import submit
from llmb_testing.entries import job_entry
from llmb_testing.fake_cluster import FakeCluster, folder_of
from llmb_testing.scheduler import Scheduler

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    """The plugins, including that of llmb_testing, also for programs that a test starts."""
    info = tmp_path / "site-packages" / "llmb_fake-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llmb-fake\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[llmb]\nfake = llmb_testing.plugin\n")
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.setenv("PYTHONPATH", str(info.parent))
    return load_plugins(builtin_plugins())


@pytest.fixture
def install(plugins: Plugins, cluster: Callable[..., Path]) -> Path:
    """An install directory of cluster type ``fake``."""
    return cluster("fake")


@pytest.fixture
def scheduler(install: Path) -> Scheduler:
    """Its scheduler."""
    return Scheduler(folder_of(install))


@pytest.fixture
def fake(scheduler: Scheduler) -> FakeCluster:
    """Its cluster."""
    return FakeCluster(scheduler=scheduler)


@pytest.fixture
def config(install: Path) -> ClusterConfig:
    """Its configuration."""
    return ClusterConfig(cluster_type="fake", gpu_type="h100", llmb_install=install)


@pytest.fixture
def items(plugins: Plugins, config: ClusterConfig) -> Callable[..., list[Prepared]]:
    """Plans this number of repeats of one configuration; keywords are fields of the request."""

    def make(count: int, **changes: object) -> list[Prepared]:
        values = {"workload": "fake_small", "scales": (8,), "repeats": count, **changes}
        request = job_entry(**values)  # type: ignore[arg-type]
        plan = make_plan([request], plugins.workloads(), config)
        prepared, faults = prepare(plan, plugins, config)
        assert not plan.faults
        assert not faults
        return prepared

    return make


@pytest.fixture
def submitted(
    items: Callable[..., list[Prepared]], fake: FakeCluster, config: ClusterConfig
) -> Callable[..., list[RunRecord]]:
    """Submits this number of jobs."""

    def make(count: int, cluster: FakeCluster = fake) -> list[RunRecord]:
        return list(submit(items(count), cluster, config, "1").submitted)

    return make


@pytest.fixture
def llmb(install: Path, llmb_here: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """llmb-run on the fake cluster, in this process."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            patch.setenv("LLMB_INSTALL", str(install))
            return llmb_here(*arguments)

    return run


@pytest.fixture
def run_wording(
    wording: Callable[..., None], runs: Callable[[], list[RunRecord]]
) -> Callable[[str, str], None]:
    """As ``wording``, with placeholders for the names and ids of the runs on disk."""

    def check(command: str, text: str) -> None:
        numbered = list(enumerate(runs(), 1))
        names = {run.name: f"<name {number}>" for number, run in numbered}
        wording(command, text, names | {run.id: f"<run {number}>" for number, run in numbered})

    return check


@pytest.fixture
def runs(config: ClusterConfig) -> Callable[[], list[RunRecord]]:
    """The runs on disk."""
    return lambda: store.all_runs(config)[0]
