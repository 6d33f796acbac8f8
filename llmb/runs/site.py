# SPDX-License-Identifier: Apache-2.0
"""What a hook may know of the place a job runs at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster as a plugin sees it.

    ``gpu_type``: the type whose rows apply (a type that is ``like`` another has become that one); ``container``: ranks
    start inside an image; ``venv``: the installed environment of this workload, None where there is none;
    ``venvs``: by their names, where it has several; ``assets``: the folders of what is installed of a model hub's
    repositories, by the hub's names; ``mpi``: what srun starts the ranks with, None for nothing; ``environment``: the
    cluster's and the workload's variables, merged; ``settings``: versions chosen at installation.
    """

    cluster_type: str
    gpu_type: str
    gpus_per_node: int
    node_architecture: str = "x86_64"
    install: Path
    container: bool = False
    venv: Path | None = None
    venvs: Mapping[str, Path] = field(default_factory=dict)
    assets: Mapping[str, Path] = field(default_factory=dict)
    mpi: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_pmix(self) -> bool:
        """Whether PMIx starts the ranks, so that a library may set up MPI between them."""
        return self.mpi is not None and self.mpi.startswith("pmix")  # srun also knows pmix_v4 and the like
