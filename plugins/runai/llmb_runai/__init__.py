# SPDX-License-Identifier: Apache-2.0
"""The cluster type ``runai``: workloads of NVIDIA Run:ai through its REST API, files and logs on a
volume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from llmb.api import ClusterType


@hookimpl
def llmb_clusters() -> list[ClusterType]:
    """Run:ai."""
    from llmb_runai.cluster_type import RUNAI

    return [RUNAI]
