# SPDX-License-Identifier: Apache-2.0
"""What holds for a workload whose plugin does not say otherwise: setup, launch and parse of NeMo 2's family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from llmb.job import Job
    from llmb.launch import Launch
    from llmb.logs.spec import ParseSpec
    from llmb.needs import Needs
    from llmb.runs.record import RunRecord
    from llmb.site import Site
    from llmb.workload import Workload


@hookimpl(trylast=True)
def llmb_setup(workload: Workload, site: Site) -> Needs | None:
    """The torch environment on this machine."""
    from llmb.nemo import torch_pretrain

    return torch_pretrain.needs(site) if site.cluster_type == "local" else None


@hookimpl(trylast=True)
def llmb_launch(workload: Workload, job: Job, site: Site) -> Launch | None:
    """The torch program: on this machine, and for the tiny sizes wherever its environment is used."""
    from llmb.nemo import torch_pretrain

    return torch_pretrain.launch(job, site) if torch_pretrain.applies(job, site) else None


@hookimpl(trylast=True)
def llmb_parse(workload: Workload, run: RunRecord) -> ParseSpec:
    """NeMo 2's step lines, which the torch program prints as well."""
    from llmb.logs.spec import ParseSpec

    return ParseSpec()
