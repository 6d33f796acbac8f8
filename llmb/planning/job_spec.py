# SPDX-License-Identifier: Apache-2.0
"""What a job is configured from: a request's configuration, the command line's overrides, the cluster's limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmb.workload.bridge import NEMO
from llmb.workload.spec import Size, Workload
from llmb.workload.switches import NO_SWITCHES, Switches


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLimits:
    """The properties of a cluster that a job's numbers depend on.

    ``gpu_type``: the cluster's name for it; ``rows``: the known type whose rows apply; ``one_machine``: all ranks run
    on this machine, whatever its node size; ``sets_vboost``: its scripts can raise the GPUs' vboost; ``requested``:
    the GPUs per node that the scheduler is asked for, None where not set; ``time_limit``: of all jobs on the cluster
    in seconds, overrides those of the workloads.
    """

    gpu_type: str
    rows: str
    gpus_per_node: int
    requested: int | None = None
    one_machine: bool = False
    needs_image: bool = False
    sets_vboost: bool = False
    time_limit: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One configuration of a JobRequest, names resolved and the command line's overrides applied.

    ``workload``: with the rows of ``framework`` and ``release``; ``params``: the given values of llmb's parameters;
    ``parameters``: those of the workload's own; ``dotted``: those of the framework's settings, by dotted path.
    """

    workload: Workload
    size: str
    dtype: str
    scale: int
    framework: str = NEMO
    release: str | None = None
    params: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    dotted: Mapping[str, str | float | bool | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    profile: bool = False
    switches: Switches = NO_SWITCHES
    places: Mapping[str | int, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Workload and size, for messages."""
        return f"{self.workload.key} {self.size}"

    @property
    def own_size(self) -> Size:
        """The size's entry in the workload's table."""
        return self.workload.sizes[self.size]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOverrides:
    """What the command line sets for every job; it overrides the list. Fields are those of JobRequest."""

    env: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    framework: str | None = None
    release: str | None = None
    dotted: Mapping[str, str | float | bool | None] = field(default_factory=dict)
    switches: Switches = NO_SWITCHES
    force: bool = False


NO_OVERRIDES = JobOverrides()
