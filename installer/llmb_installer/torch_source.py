# SPDX-License-Identifier: Apache-2.0
"""Decides where torch is taken from, by what pip says it would install."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from llmb_installer.steps import TorchSource


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
