# SPDX-License-Identifier: Apache-2.0
"""The cluster type ``runai``: workloads of NVIDIA Run:ai through its REST API, files and logs on a
volume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.api import hookimpl

if TYPE_CHECKING:
    from llmb.api import ClusterType

LLMB_CONTRACT = "1.1"


@hookimpl
def llmb_clusters() -> list[ClusterType]:
    """Run:ai."""
    from llmb_runai.cluster_type import RUNAI

    return [RUNAI]
