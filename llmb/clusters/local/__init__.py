# SPDX-License-Identifier: Apache-2.0
"""The cluster type ``local``: this machine, where one supervisor for each user runs one job after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.clusters.base import Cluster, ClusterType

if TYPE_CHECKING:
    from llmb.config import ClusterConfig


def _create(config: ClusterConfig) -> Cluster:
    from llmb.clusters.local.local_cluster import create

    return create(config)


LOCAL = ClusterType(name="local", create=_create)
