# SPDX-License-Identifier: Apache-2.0
"""Tests of the fake cluster and its plugin, as a plugin's author uses them."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.cluster import Cluster
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import COMPLETED, LOST
from llmb.measure.log_reader import read_log
from llmb.plan.plan import make_plan
from llmb.plugins.loader import load_plugins
from llmb.run import follow
from llmb.run.prepare import prepare
from llmb.run.submit import submit
from llmb_testing.entries import job_entry
from llmb_testing.fake_cluster import folder_of
from llmb_testing.scheduler import Scheduler


@pytest.fixture
def place(tmp_path: Path) -> tuple[Cluster, RunRecord]:
    """The cluster that the plugin brings, and a run that was submitted to it."""
    plugins = load_plugins(
        builtin_plugins(),
        entries=[EntryPoint(name="fake", value="llmb_testing.plugin", group="llmb")],
    )
    assert plugins.problems == []
    config = ClusterConfig(cluster_type="fake", gpu_type="h100", llmb_install=tmp_path)
    plan = make_plan([job_entry(workload="fake", scales=(8,))], plugins.workloads(), config)
    items, faults = prepare(plan, plugins, config)
    assert faults == []
    cluster = plugins.cluster_types()["fake"].make(config)
    (run,) = submit(items, cluster, config, "1").submitted
    return cluster, run


def test_a_job_that_completes_has_trained(place: tuple[Cluster, RunRecord]) -> None:
    cluster, run = place
    _, states = follow.wait(cluster, [run], follow.Watcher())
    assert states[run.id].state == COMPLETED
    samples = read_log(run.log)
    assert (samples.max_iteration, samples.last) == (run.job.max_steps - 1, run.job.max_steps - 1)


def test_what_the_scheduler_no_longer_has_is_lost(
    place: tuple[Cluster, RunRecord], tmp_path: Path
) -> None:
    cluster, run = place
    for path in (folder_of(tmp_path) / "jobs").iterdir():
        path.unlink()
    assert cluster.poll([run])[run.id].state == LOST
    assert cluster.find([run]) == {}


def test_a_script_that_is_not_the_rendered_one_is_noticed(
    place: tuple[Cluster, RunRecord], tmp_path: Path
) -> None:
    cluster, run = place
    run.script.write_text("another\n")
    with pytest.raises(AssertionError):
        cluster.submit(run)
    assert len(Scheduler(folder_of(tmp_path)).jobs()) == 1
