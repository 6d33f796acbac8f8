# SPDX-License-Identifier: Apache-2.0
"""Whether the images of the workloads can be had from their registries; asked only on demand."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb.errors import PreflightError
from llmb.workload.spec import Workload
from llmb_installer.doctor.finding import RUNAI, SLURM, Finding
from llmb_installer.registry import RegistrySettings, check_images, size

CHECK = "images"


def findings(
    workloads: Mapping[str, Workload],
    architecture: str,
    environ: Mapping[str, str],
    home: Path,
    settings: RegistrySettings | None = None,
) -> Iterator[Finding]:
    """Ask for all images that workloads name, as an installation asks; either all are there, or what is wrong."""
    images = list(dict.fromkeys(workload.image for workload in workloads.values() if workload.image))
    wanted = [(image, architecture) for image in images]
    try:
        checked = check_images(wanted, environ=environ, home=home, settings=settings)
    except PreflightError as error:
        for fault in error.faults:
            yield Finding(check=CHECK, state="missing", found=fault.message, needed_by=(SLURM, RUNAI), fix=fault.hint)
        return
    for image, found in zip(images, checked, strict=True):
        said = f"there for {architecture}, {size(found.compressed_bytes)} to fetch"
        yield Finding(check=f"image {image}", state="ok", found=said, needed_by=(SLURM, RUNAI))
