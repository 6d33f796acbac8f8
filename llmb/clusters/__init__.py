# SPDX-License-Identifier: Apache-2.0
"""Cluster types, which run jobs. llmb's own are registered through the same hook as a plugin's."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from llmb.clusters.base import Cluster, ClusterType
    from llmb.config import ClusterConfig

_MODULES = {"local": "local.local_cluster", "slurm": "slurm.slurm_cluster", "runai": "runai.runai_cluster"}


def _create(module: str, config: ClusterConfig) -> Cluster:
    cluster: Cluster = import_module(f"llmb.clusters.{module}").create(config)
    return cluster


@hookimpl
def llmb_clusters() -> list[ClusterType]:
    """The cluster types of llmb itself."""
    from llmb.clusters.base import ClusterType

    return [ClusterType(name=name, create=partial(_create, module)) for name, module in _MODULES.items()]
