# SPDX-License-Identifier: Apache-2.0
"""Tests of a site with two clusters and one accounting: every command asks the configured one."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.slurm.commands import Client
from llmb.builtin.slurm.slurm_cluster import SlurmCluster
from llmb.cli.completion import lookups
from llmb.contract.state import COMPLETED
from llmb.kit import programs
from llmb_installer.detect.scheduler import find_slurm
from llmb_testing.slurm.files import Shape
from llmb_testing.slurm.kit import SlurmKit

pytestmark = pytest.mark.fault("two-clusters")

Site = Any  # the class is in conftest.py
Wording = Callable[..., None]
LIST = "pretrain_nemotron4_tiny:\n('bf16', [1], {count})\n"


@pytest.fixture(scope="module")
def other_kit(shared_kit: SlurmKit) -> Iterator[SlurmKit]:
    """A second cluster, of two nodes with four GPUs each."""
    shape = Shape(
        name="other", nodes=2, gpus=4, partitions=("PartitionName=far Nodes=ALL State=UP",)
    )
    with SlurmKit(shape, beside=shared_kit) as kit:
        yield kit


@pytest.fixture
def site(kit: SlurmKit, other_kit: SlurmKit, site_at: Callable[..., Site]) -> Site:
    """An install directory for the other cluster, on a login node of the first."""
    return site_at(kit, slurm={"clusters": "other", "gpu": {"partition": "far", "gres": 4}})


def cluster_of(site: Site) -> SlurmCluster:
    client = Client(environ={**os.environ, **site.kit.environ}, ask_seconds=60.0, cluster="other")
    return SlurmCluster(config=site.config, client=client, digest=programs.digest())


def job_list(site: Site, count: int) -> Path:
    path: Path = site.install / "jobs.txt"
    path.write_text(LIST.format(count=count))
    return path


def test_a_list_runs_on_the_other_cluster(
    site: Site, other_kit: SlurmKit, fake_python: Callable[[str], None]
) -> None:
    fake_python("echo cluster $SLURM_CLUSTER_NAME; sleep 600")
    done = site.llmb("submit-all", job_list(site, 2))
    assert done.returncode == 0, done.stderr
    assert len(other_kit.run("squeue", "--noheader").splitlines()) == 2
    assert site.kit.run("squeue", "--noheader") == ""
    rows = json.loads(site.llmb("jobs", "list", "--format", "json").stdout)
    assert {row["state"] for row in rows} <= {"PENDING", "RUNNING"}
    assert site.llmb("jobs", "cancel", "--all").returncode == 0
    waited = site.llmb("jobs", "wait")
    assert waited.returncode in (0, 3), waited.stderr
    rows = json.loads(site.llmb("jobs", "list", "--format", "json").stdout)
    assert {row["state"] for row in rows} == {"CANCELLED"}
    # A cancelled job may still be completing (CG).
    assert other_kit.run("squeue", "--noheader", "--states=PENDING,RUNNING") == ""


def test_find_and_poll_ask_the_other_cluster(site: Site) -> None:
    cluster = cluster_of(site)
    assert cluster.identity() == "Slurm cluster other"
    run = site.submit("print('done')", cluster=cluster, gpu_type="h100")
    assert cluster.find([run]) == {run.id: run.scheduler_id}
    site.ends(run, COMPLETED, cluster=cluster)


def test_a_variable_that_selects_another_cluster_is_refused(site: Site, wording: Wording) -> None:
    refused = site.llmb("submit-all", job_list(site, 1), SLURM_CLUSTERS="kit")
    assert refused.returncode != 0
    assert "submitted" in refused.stderr
    wording("submit-all", refused.stderr)
    shown = site.llmb("submit-all", job_list(site, 1), "--dry-run", SLURM_CLUSTERS="kit")
    assert "SLURM_CLUSTERS" in shown.stderr + shown.stdout
    done = site.llmb("submit-all", job_list(site, 1), SLURM_CLUSTERS="other")
    assert done.returncode == 0, done.stderr


def test_a_variable_counts_without_the_key_too(
    kit: SlurmKit, other_kit: SlurmKit, site_at: Callable[..., Site]
) -> None:
    here = site_at(kit)
    refused = here.llmb("submit-all", job_list(here, 1), SBATCH_CLUSTERS="other")
    assert refused.returncode != 0
    assert "SBATCH_CLUSTERS" in refused.stderr
    done = here.llmb("submit-all", job_list(here, 1), SLURM_CLUSTERS="kit")
    assert done.returncode == 0, done.stderr


def test_list_and_completion_ask_the_other_cluster(
    site: Site, other_kit: SlurmKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in site.kit.environ.items():
        monkeypatch.setenv(name, value)
    assert lookups.partitions("other") == ["far"]
    assert len(lookups.nodes("other")) == 2
    assert lookups.most_gpus("far", "other") == 8
    assert "far" not in lookups.partitions()


def test_the_installer_asks_the_other_cluster(kit: SlurmKit, other_kit: SlurmKit) -> None:
    found = find_slurm({**os.environ, **kit.environ}, cluster="other")
    assert (found.cluster, list(found.partitions)) == ("other", ["far"])
    assert [(kind.per_node, kind.nodes) for kind in found.gpu_kinds()] == [(4, 2)]
    assert found.accounts == ("benchmarks",)
