# SPDX-License-Identifier: Apache-2.0
"""What is true of jobs on a cluster type, as data: what ranks start in, what trains, what a job may ask for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTraits:
    """How workloads run on a cluster. The defaults are those of a batch system with Python environments.

    ``runs_in``: what ranks start in: a Python environment that llmb-install makes; an image that it stores as a file;
    or an image by its reference, which the cluster fetches. ``trains``: what trains the models and is installed for
    them: NeMo or Megatron-Bridge, with torch's program for size tiny alone; or torch's program for every size.
    ``nodes``: how llmb-install learns GPU type and processors of the nodes: from this machine, from the scheduler, or
    from the answers alone. ``one_machine``: a job has one node, this machine, and one job runs after another.

    ``sbatch_options``: jobs take sbatch's options (``--slurm-arg``). ``slurm_variables``: ranks see Slurm's variables.
    ``sets_vboost``: the job's script can raise the GPUs' clocks. ``writable_images``: a job can choose whether ranks
    may write into their image.

    ``instead``: on a cluster without sbatch's options, what to do instead of one, by its long name (``partition``), and
    under ``others`` for all others; it is the hint of the error.
    """

    runs_in: Literal["environment", "image-file", "image-reference"] = "environment"
    trains: Literal["nemo", "torch"] = "nemo"
    nodes: Literal["this-machine", "scheduler", "answers"] = "answers"
    one_machine: bool = False
    sbatch_options: bool = False
    slurm_variables: bool = False
    sets_vboost: bool = False
    writable_images: bool = False
    instead: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    @property
    def uses_images(self) -> bool:
        """Whether ranks start inside container images."""
        return self.runs_in != "environment"

    @property
    def pulls_images(self) -> bool:
        """Whether the cluster fetches images by their references."""
        return self.runs_in == "image-reference"

    def instead_of(self, option: str) -> str:
        """What to do instead of the option ``option`` of sbatch, on a cluster that has none of them."""
        return self.instead.get(option) or self.instead.get("others") or "remove it"
