# SPDX-License-Identifier: Apache-2.0
"""The properties of a cluster that the numbers of its jobs depend on."""

from collections.abc import Mapping
from dataclasses import field

from llmb.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLimits:
    """The properties of a cluster that a job's numbers depend on."""

    #: The cluster's name for it.
    gpu_type: str
    #: The known type whose rows apply.
    rows: str
    gpus_per_node: int
    #: The GPUs per node that the scheduler is asked for, None if not set.
    requested: int | None = None
    #: All ranks run on this machine, whatever its node size.
    one_machine: bool = False
    needs_image: bool = False
    #: Its scripts can raise the GPUs' vboost.
    sets_vboost: bool = False
    #: Of all jobs on the cluster in seconds, overrides those of the workloads.
    time_limit: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
