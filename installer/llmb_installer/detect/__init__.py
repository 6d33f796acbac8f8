# SPDX-License-Identifier: Apache-2.0
"""What can be found out by looking: this machine, a folder, Slurm, the variables of Run:ai. It asks nobody."""
