# SPDX-License-Identifier: Apache-2.0
"""Every published figure fits into the time limit of its row, with time left for the start-up."""

from collections.abc import Iterable

from llmb.contract.job import Job
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.plan.estimate import TIGHT
from llmb.plan.plan import make_plan
from llmb.plan.published import Figure
from llmb.plan.published_tables import read_published
from llmb_testing.entries import job_entry


def planned(workloads: dict[str, Workload], figure: Figure) -> Iterable[Job]:
    """Return the job of the figure's configuration; none if llmb has no row for it."""
    request = job_entry(
        workload=figure.workload,
        size=figure.model_size,
        dtypes=(figure.dtype,),
        scales=(figure.scale,),
        framework=figure.framework,
    )
    config = ClusterConfig(cluster_type="slurm", gpu_type=figure.gpu_type)
    return make_plan([request], workloads, config).jobs


def test_no_published_run_is_near_its_limit(workloads: dict[str, Workload]) -> None:
    tight = {}
    count = 0
    for workload in workloads.values():
        for figure in read_published(workload):
            if (step := figure.seconds_per_step) is None or figure.gbs is None:
                continue
            for job in planned(workloads, figure):
                seconds = job.max_steps * step * job.trained.gbs / figure.gbs
                count += 1
                if seconds > TIGHT * job.time_limit:
                    name = f"{figure.release} {job.experiment_name} {job.gpu_type}"
                    tight[name] = f"{seconds / 60:.0f} of {job.time_limit / 60:.0f} minutes"
    assert tight == {}
    assert count > 150
