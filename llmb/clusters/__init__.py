# SPDX-License-Identifier: Apache-2.0
"""Cluster types, which run jobs. llmb's own are registered through the same hook as a plugin's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from llmb.clusters.base import Cluster, ClusterType
    from llmb.config import ClusterConfig


def _local(config: ClusterConfig) -> Cluster:
    from llmb.clusters.local.local_cluster import create

    return create(config)


def _slurm(config: ClusterConfig) -> Cluster:
    from llmb.clusters.slurm.slurm_cluster import create

    return create(config)


def _runai(config: ClusterConfig) -> Cluster:
    from llmb.clusters.runai.runai_cluster import create

    return create(config)


@hookimpl
def llmb_clusters() -> list[ClusterType]:
    """The cluster types of llmb itself."""
    from llmb.clusters.base import ClusterType

    own = {"local": _local, "slurm": _slurm, "runai": _runai}
    return [ClusterType(name=name, create=create) for name, create in own.items()]
