# SPDX-License-Identifier: Apache-2.0
"""The default setup, launch and parse of workloads: NeMo 2, and the torch program for small sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from llmb import api


@hookimpl(trylast=True)
def llmb_setup(workload: api.Workload, site: api.Site) -> api.Needs | None:
    """The image, or the environment if there are no containers; those of the framework that the settings select."""
    if workload.bridge is not None and site.settings.get("framework") == "bridge" and site.cluster_type != "local":
        from llmb.frameworks.bridge import bridge_needs as bridge
        from llmb.workload.bridge import read_bridge

        return bridge.needs(read_bridge(workload.bridge), site)
    from llmb.frameworks.nemo.needs import needs

    return needs(workload, site)


@hookimpl(trylast=True)
def llmb_launch(workload: api.Workload, job: api.Job, site: api.Site) -> api.Launch | None:
    """Megatron-Bridge, or NeMo for sizes with a NeMo recipe on GPUs; else the torch program for this machine."""
    if job.framework == "bridge":
        from llmb.frameworks.bridge import bridge_pretrain as bridge

        return bridge.launch(workload, job, site)
    from llmb.frameworks.nemo import nemo_pretrain, torch_pretrain

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
