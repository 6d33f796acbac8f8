# SPDX-License-Identifier: Apache-2.0
"""NeMo 2 as a framework. llmb's torch program runs what has no NeMo recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.builtin.nvidia_images import nemo_release
from llmb.contract.spec import NEMO, Framework, Workload

if TYPE_CHECKING:
    from llmb.contract.job import Job
    from llmb.contract.launch import Launch, Site
    from llmb.contract.needs import Needs


def framework() -> Framework:
    """Return NeMo 2, with the dtypes of its precision plugins and of the torch program."""
    return Framework(
        name=NEMO,
        title="NeMo",
        description="NeMo 2",
        library="nemo-toolkit",
        launch=_launch,
        needs=_needs,
        dtypes=("bf16", "fp8", "mxfp8", "fp16", "fp32"),
        image_release=nemo_release,
    )


def _launch(workload: Workload, job: Job, site: Site) -> Launch | None:
    """Launch NeMo for a size with a recipe on GPUs, else the torch program."""
    from llmb.builtin.nemo import nemo_pretrain
    from llmb.builtin.torch import torch_pretrain

    if nemo_pretrain.applies(workload, job, site):
        return nemo_pretrain.launch(workload, job, site)
    if not torch_pretrain.applies(job, site):
        return None
    return torch_pretrain.launch(job, site, own_image=job.image != workload.image)


def _needs(workload: Workload, site: Site) -> Needs | None:
    from llmb.builtin.nemo.nemo_needs import needs

    return needs(workload, site)
