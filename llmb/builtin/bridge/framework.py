# SPDX-License-Identifier: Apache-2.0
"""Megatron-Bridge as a framework."""

from llmb.contract.job import Job
from llmb.contract.launch import Launch, Site
from llmb.contract.needs import Needs
from llmb.contract.spec import Framework, Workload
from llmb.plan.bridge_rows import BRIDGE, DTYPES, table_of


def framework() -> Framework:
    """Return Megatron-Bridge."""
    return Framework(
        name=BRIDGE, title="Megatron-Bridge", launch=_launch, needs=_needs, dtypes=DTYPES
    )


def _launch(workload: Workload, job: Job, site: Site) -> Launch:
    from llmb.builtin.bridge.bridge_pretrain import launch

    return launch(workload, job, site)


def _needs(workload: Workload, site: Site) -> Needs:
    from llmb.builtin.bridge.bridge_needs import needs

    return needs(table_of(workload), site)
