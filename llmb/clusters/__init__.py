# SPDX-License-Identifier: Apache-2.0
"""Cluster types: what runs jobs. llmb's own come through the same hook as a plugin's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from llmb.clusters.base import ClusterType


@hookimpl
def llmb_clusters() -> list[ClusterType]:
    """The cluster types that llmb itself brings."""
    from llmb.clusters.local import LOCAL
    from llmb.clusters.runai import RUNAI
    from llmb.clusters.slurm import SLURM

    return [LOCAL, SLURM, RUNAI]
