# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on this machine alone: several nodes with pretended GPUs, from the distribution's own packages."""

from llmb_testing.slurm.daemons import missing_packages
from llmb_testing.slurm.files import Shape
from llmb_testing.slurm.kit import SlurmKit

__all__ = ["Shape", "SlurmKit", "missing_packages"]
