# SPDX-License-Identifier: Apache-2.0
"""Detects what the answers need not give: this machine, Slurm, Run:ai's variables, an installation. Asks nobody."""
