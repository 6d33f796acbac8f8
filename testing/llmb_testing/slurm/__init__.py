# SPDX-License-Identifier: Apache-2.0
"""A real Slurm cluster on this machine: several nodes with pretended GPUs, from the Debian packages
of Slurm.
"""

from llmb_testing.slurm.daemons import missing_packages
from llmb_testing.slurm.files import Shape
from llmb_testing.slurm.kit import SlurmKit

__all__ = ["Shape", "SlurmKit", "missing_packages"]
