# SPDX-License-Identifier: Apache-2.0
"""Megatron-Bridge as a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmb.builtin.bridge.bridge_rows import DTYPES, FP8_CS, SPELLINGS, sized, table_of
from llmb.builtin.nvidia_images import bridge_release, releases
from llmb.contract.spec import BRIDGE, Framework, ImageRelease, RowsBySize, Workload

if TYPE_CHECKING:
    from llmb.contract.job import Job
    from llmb.contract.launch import Launch, Site
    from llmb.contract.needs import Needs

LIBRARY = "megatron-bridge"  # the package


def framework() -> Framework:
    """Return Megatron-Bridge, with the releases and rows that NVIDIA published."""
    return Framework(
        name=BRIDGE,
        title="Megatron-Bridge",
        description="Megatron-Bridge, in NVIDIA's newer images",
        library=LIBRARY,
        publisher="NVIDIA",
        launch=_launch,
        needs=_needs,
        dtypes=DTYPES,
        window=(0.7, 0.88),  # 35-44 of 50, as in exemplar-performance
        releases={
            name: ImageRelease(
                image=release.image,
                libraries={LIBRARY: release.bridge, "megatron-core": release.core},
            )
            for name, release in releases().items()
        },
        image_release=bridge_release,
        rows=_rows,
        sized=sized,
        spellings=SPELLINGS,
        meaning=_meaning,
        any_scale=True,
        dotted=True,
        nsys=True,
    )


def _launch(workload: Workload, job: Job, site: Site) -> Launch:
    from llmb.builtin.bridge.bridge_pretrain import launch

    return launch(workload, job, site)


def _needs(workload: Workload, site: Site) -> Needs:
    from llmb.builtin.bridge.bridge_needs import needs

    return needs(table_of(workload), site)


def _rows(workload: Workload) -> RowsBySize:
    return {name: size.rows for name, size in table_of(workload).sizes.items()}


def _meaning(workload: Workload, size: str, dtype: str, gpu: str, scale: int) -> str:
    if dtype != "fp8":
        return SPELLINGS[dtype][0]
    bridge_size = table_of(workload).sizes.get(size)
    return FP8_CS if bridge_size is None else bridge_size.fp8_dtype(gpu, scale)
