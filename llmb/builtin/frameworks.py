# SPDX-License-Identifier: Apache-2.0
"""The training frameworks: setup, launch and parse for workloads whose plugins define none.

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
    """Return the image, or the environment without containers, of the selected frameworks."""
    from llmb.builtin.nemo.nemo_needs import needs
    from llmb.contract.needs import Needs

    bridge, nemo = _frameworks(workload, site)
    nemo_needs = needs(workload, site) if nemo else None
    if not bridge:
        return nemo_needs
    from llmb.builtin.bridge import bridge_needs
    from llmb.plan.bridge_rows import table_of

    bridge_part = bridge_needs.needs(table_of(workload), site)
    return Needs(needs=(*(nemo_needs.needs if nemo_needs is not None else ()), *bridge_part.needs))


def _frameworks(workload: api.Workload, site: api.Site) -> tuple[bool, bool]:
    """Return whether to install Megatron-Bridge, and whether NeMo.

    By default Megatron-Bridge only if NeMo has no row for the GPU type. A workload that has only
    one of them is installed for that, whatever is selected.
    """
    from llmb.plan.bridge_rows import bridge_sizes

    choice = site.settings.get("framework", "auto")
    if workload.bridge is None or site.runs.trains == "torch" or site.gpu_type == "cpu":
        return False, True
    if not any(size.rows for size in workload.sizes.values()):
        return True, False
    if choice == "auto":
        sizes = workload.sizes.values()
        has_nemo = any(
            site.gpu_type in row.gpu for size in sizes if size.nemo is not None for row in size.rows
        )
        choice = "nemo" if has_nemo or not bridge_sizes(workload, site.gpu_type) else "bridge"
    return choice in ("bridge", "both"), choice in ("nemo", "both")


@hookimpl(trylast=True)
def llmb_launch(workload: api.Workload, job: api.Job, site: api.Site) -> api.Launch | None:
    """Launch the workload's own command, else Megatron-Bridge, or NeMo for a NeMo recipe on GPUs,
    else the torch program.
    """
    if workload.launch is not None:
        from llmb.contract.launch import Launch
        from llmb.contract.placeholders import filled

        return Launch.of(filled(workload.launch, job), job, site)
    launch = _launch(workload, job, site)
    if launch is None or workload.bridge is None:
        return launch
    from llmb.builtin.install_hint import fixes_of

    bridge, nemo = _frameworks(workload, site)
    return replace(
        launch, fixes={**fixes_of(job, launch, site, bridge=bridge, nemo=nemo), **launch.fixes}
    )


def _launch(workload: api.Workload, job: api.Job, site: api.Site) -> api.Launch | None:
    if job.framework == "bridge":
        from llmb.builtin.bridge import bridge_pretrain as bridge

        return bridge.launch(workload, job, site)
    from llmb.builtin.nemo import nemo_pretrain
    from llmb.builtin.torch import torch_pretrain

    if nemo_pretrain.applies(workload, job, site):
        return nemo_pretrain.launch(workload, job, site)
    if not torch_pretrain.applies(job, site):
        return None
    return torch_pretrain.launch(job, site, own_image=job.image != workload.image)


@hookimpl(trylast=True)
def llmb_parse(workload: api.Workload) -> api.ParseSpec:
    """The workload's own format, else NeMo 2's step lines, which the torch program prints too."""
    from llmb.contract.formats import NEMO2

    return workload.parse or NEMO2
