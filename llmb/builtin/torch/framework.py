# SPDX-License-Identifier: Apache-2.0
"""llmb's torch program as a framework, for workloads that have it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.builtin.torch.torch_names import DTYPES, NAME
from llmb.contract.spec import Framework, Workload

if TYPE_CHECKING:
    from llmb.contract.job import Job
    from llmb.contract.launch import Launch, Site
    from llmb.contract.needs import Needs


def framework() -> Framework:
    """Return the torch program."""
    return Framework(name=NAME, title="torch", launch=_launch, needs=_needs, dtypes=DTYPES)


def _launch(workload: Workload, job: Job, site: Site) -> Launch:
    from llmb.builtin.torch.torch_pretrain import launch

    return launch(job, site, own_image=job.image != workload.image)


def _needs(_workload: Workload, site: Site) -> Needs:
    from llmb.builtin.torch.torch_pretrain import needs

    return needs(site)
