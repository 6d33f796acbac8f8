# SPDX-License-Identifier: Apache-2.0
"""Detects this machine, Slurm, Run:ai's variables and an installation. Asks nobody."""
