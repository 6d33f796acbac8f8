# SPDX-License-Identifier: Apache-2.0
"""Tests of what is added to every plugin's launch: mounts reach each program, or are refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from llmb.contract.launch import Launch, Program, Site
from llmb.contract.spec import Workload
from llmb.contract.switches import Switches
from llmb.errors import UsageError
from llmb.plugins.answers import completed
from llmb_installer.cluster_types import all_types
from llmb_testing.job import SMALLEST_JOB

SITE = Site(
    cluster_type="slurm",
    gpu_type="h100",
    gpus_per_node=8,
    install=Path("/i"),
    traits=all_types()["slurm"].traits_of(None),
)
LAUNCH = Launch(
    name="x",
    nodes=1,
    ranks_per_node=1,
    time_limit=60,
    program=Program(module="m"),
    mounts=("/own:/own:ro",),
)
JOB = replace(SMALLEST_JOB, switches=Switches(mounts=("/a:/b", "/own:/own:ro")))


@pytest.fixture
def workload(workloads: dict[str, Workload]) -> Workload:
    """A workload with an image."""
    return workloads["pretrain_nemotron4"]


def test_a_mount_is_added_to_every_plugins_launch(workload: Workload) -> None:
    found = completed(replace(LAUNCH, image="i:1"), workload, JOB, SITE)
    assert found.mounts == ("/a:/b", "/own:/own:ro")
    assert (found.workload, found.gpu_type) == (JOB.workload, JOB.gpu_type)


def test_the_fix_for_a_missing_image_of_the_job_builds_that_image(workload: Workload) -> None:
    """Its own image, not that of the workload, which is installed with it."""
    job = replace(JOB, image="own:1")
    (fix,) = completed(replace(LAUNCH, image="own:1"), workload, job, SITE).fixes.items()
    assert (fix[0], fix[1].split()) == (
        "own:1",
        ["llmb-install", "image", "own:1", "--install", "/i"],
    )
    usual = replace(JOB, image=workload.image)
    assert completed(replace(LAUNCH, image=workload.image), workload, usual, SITE).fixes == {}


def test_a_mount_without_a_container_is_refused(workload: Workload) -> None:
    with pytest.raises(UsageError) as caught:
        completed(LAUNCH, workload, JOB, SITE)
    assert (caught.value.code, caught.value.key) == ("switch-without-effect", "mounts")


def test_a_writable_container_is_for_slurm_alone(workload: Workload) -> None:
    job = replace(SMALLEST_JOB, switches=Switches(container_writable=True))
    with pytest.raises(UsageError) as caught:
        completed(
            LAUNCH,
            workload,
            job,
            replace(SITE, cluster_type="runai", traits=all_types()["runai"].traits_of(None)),
        )
    assert (caught.value.code, caught.value.key) == ("switch-without-effect", "container_writable")
