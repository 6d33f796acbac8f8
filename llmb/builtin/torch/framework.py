# SPDX-License-Identifier: Apache-2.0
"""llmb's torch program as a framework, for workloads that have it alone."""

from llmb.builtin.torch.torch_pretrain import DTYPES, NAME, launch, needs
from llmb.contract.job import Job
from llmb.contract.launch import Launch, Site
from llmb.contract.needs import Needs
from llmb.contract.spec import Framework, Workload


def framework() -> Framework:
    """Return the torch program."""
    return Framework(name=NAME, title="torch", launch=_launch, needs=_needs, dtypes=DTYPES)


def _launch(workload: Workload, job: Job, site: Site) -> Launch:
    return launch(job, site, own_image=job.image != workload.image)


def _needs(_workload: Workload, site: Site) -> Needs:
    return needs(site)
