# SPDX-License-Identifier: Apache-2.0
"""Holds answers against the cluster that is here, before anything is fetched: what cannot be, and what is doubtful."""

from __future__ import annotations

from collections.abc import Iterator

from llmb.clusters.runai.volume import is_on
from llmb_installer import slurm_fit
from llmb_installer.answers import Answers


def check(answers: Answers) -> list[str]:
    """What llmb-run would refuse later, in sentences. Raises InputFaults for what cannot be, each at its key."""
    if answers.cluster_type == "slurm":
        return slurm_fit.check(answers)
    return [*_volume_doubts(answers)] if answers.cluster_type == "runai" else []


def _volume_doubts(answers: Answers) -> Iterator[str]:
    """Whether files lie where pods of Run:ai see them; the volume may be mounted later."""
    if answers.runai is None:
        return
    pvc = answers.runai.pvc
    if not pvc.here.is_dir():
        yield f"the volume {pvc.name} is not mounted here: no folder {pvc.here} ('runai.pvc.local' names another)"
    for key, folder in (("install", answers.install), ("experiments_root", answers.experiments_root)):
        if folder is not None and not is_on(pvc, folder):
            yield f"{key}: {folder} is not on the volume {pvc.here}: pods see nothing else, llmb-run refuses jobs"
