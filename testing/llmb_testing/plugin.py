# SPDX-License-Identifier: Apache-2.0
"""A plugin for tests: the cluster type ``fake`` and a workload that runs on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from llmb.contract.cluster_type import ClusterType
    from llmb.contract.job import Job
    from llmb.contract.launch import Launch, Site
    from llmb.contract.spec import Workload


@hookimpl
def llmb_workload() -> Workload:
    """The workload pretrain_fake of ``workload.yaml``, with one size."""
    from llmb.contract.spec import read_workload

    return read_workload(Path(__file__).with_name("workload.yaml"))


@hookimpl
def llmb_launch(job: Job, site: Site) -> Launch | None:
    """A launch for the cluster type ``fake``, which runs no program."""
    from llmb.contract.launch import Launch, Program

    if site.cluster_type != "fake":
        return None
    return Launch(
        name=job.experiment_name,
        nodes=job.nodes,
        ranks_per_node=job.gpus_per_node,
        time_limit=job.time_limit,
        program=Program(module="nothing"),
        environment=job.env,
    )


@hookimpl
def llmb_clusters() -> Sequence[ClusterType]:
    """The cluster type ``fake``."""
    from llmb_testing.fake_cluster import FAKE

    return [FAKE]
