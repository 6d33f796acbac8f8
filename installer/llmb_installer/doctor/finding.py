# SPDX-License-Identifier: Apache-2.0
"""The result of one check of the doctor, and llmb's own cluster types."""

from llmb.contract.finding import Finding, State, finding, wrong

__all__ = ["ALL", "LOCAL", "RUNAI", "SLURM", "Finding", "State", "finding", "wrong"]

LOCAL, SLURM, RUNAI = "local", "slurm", "runai"
ALL = (LOCAL, SLURM, RUNAI)
