# SPDX-License-Identifier: Apache-2.0
"""The cluster types that the doctor examines."""

LOCAL, SLURM, RUNAI = "local", "slurm", "runai"
ALL = (LOCAL, SLURM, RUNAI)
