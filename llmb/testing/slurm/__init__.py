# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on this machine alone: several nodes with pretended GPUs, from the distribution's own packages."""

from llmb.testing.slurm.binaries import missing_packages
from llmb.testing.slurm.files import Shape
from llmb.testing.slurm.kit import SlurmKit

__all__ = ["Shape", "SlurmKit", "missing_packages"]
