# SPDX-License-Identifier: Apache-2.0
"""Chooses where the programs of an installation run: here, or on a node of the cluster, as the answers have it."""

from pathlib import Path

from llmb.config.slurm import SLURM_OPTIONS, SlurmConfig
from llmb_installer.answers import Answers
from llmb_installer.execution.runner import Here, Runner, Sbatch, Srun
from llmb_installer.record.record import FOLDER

_LEFT_OUT = ("gres", "gpus_per_node", "segment", "nice")  # what is installed needs no GPU


def runner_for(answers: Answers, install: Path) -> Runner:
    """Where things are fetched and built."""
    if answers.method == "srun":
        return Srun(options=node_options(answers))
    if answers.method == "sbatch":
        return Sbatch(options=node_options(answers), folder=install / FOLDER / "jobs")
    return Here()


def node_options(answers: Answers) -> tuple[str, ...]:
    """The options of srun and sbatch that lead to one of the nodes that jobs will use."""
    slurm = answers.slurm or SlurmConfig()
    given = {name: slurm.option(name) for name in SLURM_OPTIONS if name not in _LEFT_OUT}
    return tuple(f"--{name}={value}" for name, value in given.items() if value is not None)
