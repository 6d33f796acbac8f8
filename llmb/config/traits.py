# SPDX-License-Identifier: Apache-2.0
"""What is true of jobs on a cluster type, as data: what ranks start in, what trains, what a job may ask for."""

from dataclasses import dataclass
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
    """

    runs_in: Literal["environment", "image-file", "image-reference"] = "environment"
    trains: Literal["nemo", "torch"] = "nemo"
    nodes: Literal["this-machine", "scheduler", "answers"] = "answers"
    one_machine: bool = False
    sbatch_options: bool = False
    slurm_variables: bool = False
    sets_vboost: bool = False
    writable_images: bool = False

    @property
    def uses_images(self) -> bool:
        """Whether ranks start inside container images."""
        return self.runs_in != "environment"

    @property
    def pulls_images(self) -> bool:
        """Whether the cluster fetches images by their references."""
        return self.runs_in == "image-reference"
