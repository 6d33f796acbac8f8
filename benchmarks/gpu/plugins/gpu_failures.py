# SPDX-License-Identifier: Apache-2.0
"""Programs that fail in real ways; gpu_failures.yaml has the cases."""

from pathlib import Path

from llmb import api

_HERE = Path(__file__).parent


@api.hookimpl
def llmb_workload() -> api.Workload:
    """The cases oom, killed, illegal_address and too_long."""
    return api.read_workload(_HERE / "gpu_failures.yaml")


@api.hookimpl
def llmb_setup(workload: api.Workload, site: api.Site) -> api.Needs:
    """Need nothing."""
    return api.Needs(needs=())


@api.hookimpl
def llmb_launch(job: api.Job, site: api.Site) -> api.Launch:
    """Start the program of the case with the Python that has torch."""
    return api.Launch(
        name=job.experiment_name,
        nodes=job.nodes,
        ranks_per_node=job.gpus_per_node,
        time_limit=job.time_limit,
        program=api.Program(script=str(_HERE / "_failing.py")),
        args=(job.model_size,),
        venv=str(site.venv),
        environment=dict(job.env),
    )
