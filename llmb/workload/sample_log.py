# SPDX-License-Identifier: Apache-2.0
"""The sample log of a workload: what its program printed once, with which the plugin is checked and tested."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLog:
    """A log of one run. ``file``: relative to workload.yaml; ``size``: of that run, None for the default size."""

    file: Path
    size: str | None = None
