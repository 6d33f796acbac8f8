# SPDX-License-Identifier: Apache-2.0
"""The inputs of a job: the configuration of a request, overrides, and the cluster's limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmb.contract.spec import Size, Workload
from llmb.contract.switches import NO_SWITCHES, SettingValue, Switches
from llmb.plan.bridge_rows import NEMO


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One configuration of a JobRequest, with names resolved and the command line's overrides."""

    #: With the rows of ``framework`` and ``release``.
    workload: Workload
    size: str
    dtype: str
    scale: int
    framework: str = NEMO
    release: str | None = None
    #: The given values of llmb's parameters.
    params: Mapping[str, int] = field(default_factory=dict)
    #: The given values of the workload's parameters.
    parameters: Mapping[str, str] = field(default_factory=dict)
    #: The given settings of the framework, by dotted path.
    dotted: Mapping[str, SettingValue] = field(default_factory=dict)
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
    """Values of the command line for every job. They override the list."""

    env: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    framework: str | None = None
    release: str | None = None
    dotted: Mapping[str, SettingValue] = field(default_factory=dict)
    switches: Switches = NO_SWITCHES
    force: bool = False


NO_OVERRIDES = JobOverrides()
