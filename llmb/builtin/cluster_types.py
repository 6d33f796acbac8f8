# SPDX-License-Identifier: Apache-2.0
"""Cluster types run jobs. llmb's own are registered through the same hook as a plugin's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from llmb.contract.cluster_type import ClusterType


@hookimpl
def llmb_clusters() -> list[ClusterType]:
    """The cluster types of llmb itself."""
    from llmb.builtin.own_types import own_types

    return [*own_types().values()]
