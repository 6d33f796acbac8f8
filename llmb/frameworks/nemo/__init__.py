# SPDX-License-Identifier: Apache-2.0
"""The default setup, launch and parse of workloads: NeMo 2, and the torch program for small sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from llmb.logs.formats import ParseSpec
    from llmb.runs.job import Job
    from llmb.runs.launch import Launch, Site
    from llmb.runs.record import RunRecord
    from llmb.workload.needs import Needs
    from llmb.workload.spec import Workload


@hookimpl(trylast=True)
def llmb_setup(workload: Workload, site: Site) -> Needs | None:
    """The image, or the environment if there are no containers."""
    from llmb.frameworks.nemo.needs import needs

    return needs(workload, site)


@hookimpl(trylast=True)
def llmb_launch(workload: Workload, job: Job, site: Site) -> Launch | None:
    """NeMo for sizes with a NeMo recipe on GPUs; else the torch program for jobs of this machine and tiny sizes."""
    from llmb.frameworks.nemo import nemo_pretrain, torch_pretrain

    if nemo_pretrain.applies(workload, job, site):
        return nemo_pretrain.launch(workload, job, site)
    if not torch_pretrain.applies(job, site):
        return None
    return torch_pretrain.launch(job, site, own_image=job.image != workload.image)


@hookimpl(trylast=True)
def llmb_parse(workload: Workload, run: RunRecord) -> ParseSpec:
    """NeMo 2's step lines, which the torch program prints too."""
    from llmb.logs.formats import ParseSpec

    return ParseSpec()
