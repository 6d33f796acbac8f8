# SPDX-License-Identifier: Apache-2.0
"""Whether the images of the workloads can be had from their registries; asked only on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb.errors import LlmbError
from llmb.workload import Workload
from llmb_installer.doctor.finding import RUNAI, SLURM, Finding
from llmb_installer.registry.preflight import check_image


def findings(
    workloads: Mapping[str, Workload], architecture: str, environ: Mapping[str, str], home: Path
) -> Iterator[Finding]:
    """Ask for each image that a workload names, in its registry."""
    for image in dict.fromkeys(workload.image for workload in workloads.values() if workload.image):
        try:
            found = check_image(image, architecture, environ=environ, home=home)
        except LlmbError as error:
            yield Finding(
                check=f"image {image}", state="missing", found=error.message, needed_by=(SLURM, RUNAI), cure=error.hint
            )
            continue
        said = f"there for {architecture}, {found.compressed_bytes / 1e9:.1f} GB to fetch"
        yield Finding(check=f"image {image}", state="ok", found=said, needed_by=(SLURM, RUNAI))
