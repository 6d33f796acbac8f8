# SPDX-License-Identifier: Apache-2.0
"""What the machine is that an installation is for: its GPU type, and the Site that hooks are asked about."""

from __future__ import annotations

import platform
import re
import shutil
from dataclasses import dataclass

from llmb import shell, typed
from llmb.gpus import CPU, known_types
from llmb.site import Site
from llmb_installer.answers import AUTO, Answers

ANSWER_WITHIN = 30.0  # seconds; nvidia-smi is slow where the driver's persistence mode is off


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGpu:
    """The GPU type to install for; ``note`` says what the user should know of how it was found."""

    gpu_type: str
    note: str = ""


def find_gpu(answer: str) -> FoundGpu:
    """The GPU type of the answer; for ``auto`` that of this machine's first GPU, ``cpu`` where there is none."""
    if answer != AUTO:
        return FoundGpu(gpu_type=answer)
    if shutil.which("nvidia-smi") is None:
        return FoundGpu(gpu_type=CPU)
    asked = shell.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout=ANSWER_WITHIN)
    if asked.code != 0:
        said = (asked.out + asked.err).strip().splitlines()
        return FoundGpu(gpu_type=CPU, note=f"nvidia-smi finds no GPU ({said[0] if said else asked.code}): type cpu")
    return type_of(asked.out)


def type_of(names: str) -> FoundGpu:
    """The GPU type of what nvidia-smi prints, one product name a line; names match whole (B200 is not GB200)."""
    name = names.strip().splitlines()[0].strip() if names.strip() else ""
    words = re.split(r"[^a-z0-9]+", name.lower())
    for known in known_types():
        if known in words:
            return FoundGpu(gpu_type=known)
    if not name:
        return FoundGpu(gpu_type=CPU)
    note = f"the GPU '{name}' is of no known type: type cpu; 'gpu_type' in the answers chooses another"
    return FoundGpu(gpu_type=CPU, note=note)


def site_of(answers: Answers, gpu_type: str) -> Site:
    """The site that plugins are asked about."""
    return Site(
        cluster_type=answers.cluster_type,
        gpu_type=gpu_type,
        gpus_per_node=known_types()[gpu_type].gpus_per_node,
        node_architecture=platform.machine(),
        install=answers.install,
        environment=answers.environment,
        settings=typed.to_data(answers.versions),
    )
