# SPDX-License-Identifier: Apache-2.0
"""The training frameworks: setup, launch and parse for workloads whose plugins do not define their own.

NeMo 2, Megatron-Bridge, and a torch program for small sizes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from llmb import api


@hookimpl(trylast=True)
def llmb_setup(workload: api.Workload, site: api.Site) -> api.Needs | None:
    """The image, or the environment if there are no containers; those of the frameworks that the settings select."""
    from llmb.frameworks.nemo.needs import needs
    from llmb.workload.needs import Needs

    bridge, nemo = _frameworks(workload, site)
    found = needs(workload, site) if nemo else None
    if not bridge:
        return found
    from llmb.frameworks.bridge import bridge_needs
    from llmb.workload.bridge import table_of

    own = bridge_needs.needs(table_of(workload), site)
    return Needs(needs=(*(found.needs if found is not None else ()), *own.needs))


def _frameworks(workload: api.Workload, site: api.Site) -> tuple[bool, bool]:
    """Whether to install Megatron-Bridge and NeMo; by default the former only where NeMo has no row for the GPU type.

    A workload without rows of Megatron-Bridge is installed for NeMo, whatever is selected.
    """
    from llmb.workload.bridge import bridge_sizes

    choice = site.settings.get("framework", "auto")
    if workload.bridge is None or site.runs.trains == "torch" or site.gpu_type == "cpu":
        return False, True
    if choice == "auto":
        sizes = workload.sizes.values()
        has_nemo = any(site.gpu_type in row.gpu for size in sizes if size.nemo is not None for row in size.rows)
        choice = "nemo" if has_nemo or not bridge_sizes(workload, site.gpu_type) else "bridge"
    return choice in ("bridge", "both"), choice in ("nemo", "both")


@hookimpl(trylast=True)
def llmb_launch(workload: api.Workload, job: api.Job, site: api.Site) -> api.Launch | None:
    """Megatron-Bridge, or NeMo for sizes with a NeMo recipe on GPUs; else the torch program for this machine."""
    launch = _launch(workload, job, site)
    if launch is None or workload.bridge is None:
        return launch
    from llmb.frameworks.how_installed import fixes_of

    bridge, nemo = _frameworks(workload, site)
    return replace(launch, fixes={**fixes_of(job, launch, site, bridge=bridge, nemo=nemo), **launch.fixes})


def _launch(workload: api.Workload, job: api.Job, site: api.Site) -> api.Launch | None:
    if job.framework == "bridge":
        from llmb.frameworks.bridge import bridge_pretrain as bridge

        return bridge.launch(workload, job, site)
    from llmb.frameworks import torch_pretrain
    from llmb.frameworks.nemo import nemo_pretrain

    if nemo_pretrain.applies(workload, job, site):
        return nemo_pretrain.launch(workload, job, site)
    if not torch_pretrain.applies(job, site):
        return None
    return torch_pretrain.launch(job, site, own_image=job.image != workload.image)


@hookimpl(trylast=True)
def llmb_parse(workload: api.Workload, run: api.RunRecord) -> api.ParseSpec:
    """NeMo 2's step lines, which the torch program prints too."""
    from llmb.logs.formats import NEMO2

    return NEMO2
