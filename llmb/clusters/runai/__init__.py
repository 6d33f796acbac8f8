# SPDX-License-Identifier: Apache-2.0
"""The cluster type ``runai``: workloads of NVIDIA Run:ai by its REST API; files and logs on a volume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.clusters.base import Cluster, ClusterType

if TYPE_CHECKING:
    from llmb.config import ClusterConfig


def _create(config: ClusterConfig) -> Cluster:
    from llmb.clusters.runai.runai_cluster import create

    return create(config)


RUNAI = ClusterType(name="runai", create=_create)
