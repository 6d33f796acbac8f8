# SPDX-License-Identifier: Apache-2.0
"""Decides where torch is taken from, by what pip says it would install."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from llmb_installer.answers.schema import CPU_WHEELS


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchSource:
    """Where torch comes from: ``index`` for it alone, else pip's own sources.

    ``cpu_index`` is taken when those would bring CUDA's libraries; None lets them.
    """

    index: str | None = None
    cpu_index: str | None = None


def torch_line(requirements: Iterable[str]) -> str | None:
    """The line of pip's requirements that asks for torch itself (not for torchvision), if there is one."""
    return next((line for line in requirements if re.match(r"torch(?![\w.-])", line.strip(), re.IGNORECASE)), None)


def cuda_packages(report: dict[str, Any]) -> list[str]:
    """The packages in pip's installation report that only a machine with an NVIDIA GPU uses."""
    names = [re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower() for item in report["install"]]
    return [name for name in names if re.match(r"(nvidia|cuda)-|(pytorch-)?triton$", name)]


def index_for(source: TorchSource, report: dict[str, Any]) -> str | None:
    """The index for torch alone, None for pip's own sources; ``report`` is what pip would install from those."""
    if source.index is not None:
        return source.index
    return source.cpu_index if cuda_packages(report) else None


def is_spare(source: TorchSource) -> bool:
    """Whether its index is only the usual one for CPUs, which sites with an index of their own often cannot reach.

    Without it torch comes from pip's sources, larger and just as good; an index that was named in the answers counts.
    """
    return source.index is None and source.cpu_index == CPU_WHEELS.text
