# SPDX-License-Identifier: Apache-2.0
"""Which sizes of the workloads cannot be launched on a cluster as it is configured, and what makes them run."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from llmb.config import ClusterConfig
from llmb.errors import LlmbError
from llmb.planning.plan import make_plan
from llmb.plugins.loader import Plugins
from llmb.runs.job import JobRequest
from llmb.submission.submit import launch_of, prepare
from llmb.workload.spec import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """A size that cannot be launched: why, and ``hint``: what makes it run."""

    workload: str
    size: str
    reason: str
    hint: str | None


def obstacles(workloads: Iterable[Workload], plugins: Plugins, config: ClusterConfig) -> Iterator[Obstacle]:
    """The sizes with a row for the cluster's GPU type whose smallest job no plugin launches there. Pure.

    A size without such a row is none: the table says which GPU types it is for.
    """
    gpu = config.rows_for(config.gpu_type)
    for workload in workloads:
        for name, size in workload.sizes.items():
            tested = [(dtype, size.scales(gpu, dtype, strong=False)) for dtype in size.dtypes(gpu)]
            first = next(((dtype, scales[0]) for dtype, scales in tested if scales), None)
            error = _refusal(workload, name, *first, plugins, config) if first is not None else None
            if error is not None:
                reason = error.message.partition(": ")[2] or error.message  # without the experiment's name
                yield Obstacle(workload=workload.key, size=name, reason=reason, hint=error.hint)


def _refusal(
    workload: Workload, size: str, dtype: str, scale: int, plugins: Plugins, config: ClusterConfig
) -> LlmbError | None:
    request = JobRequest(workload=workload.key, size=size, dtypes=(dtype,), scales=(scale,))
    plan = make_plan([request], plugins.workloads(), config)
    if plan.faults:  # of the job's numbers: what the table says
        return None
    items, faults = prepare(plan, plugins, config)
    if faults:
        return LlmbError(faults[0].message, hint=faults[0].hint)
    try:
        for item in items:
            launch_of(item, config)
    except LlmbError as error:
        return error
    return None
