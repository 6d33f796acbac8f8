# SPDX-License-Identifier: Apache-2.0
"""The cluster type ``slurm``: one batch script of our own for each run, with pyxis or without a container."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.clusters.base import Cluster, ClusterType

if TYPE_CHECKING:
    from llmb.config import ClusterConfig


def _create(config: ClusterConfig) -> Cluster:
    from llmb.clusters.slurm.slurm_cluster import create

    return create(config)


SLURM = ClusterType(name="slurm", create=_create)
