# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a node that jobs ask Slurm for, where the answers leave them open: without, their steps see none."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llmb.config.slurm import SlurmConfig, SlurmOptions
from llmb.workload.gpus import CPU
from llmb_installer.answers import Answers
from llmb_installer.detect.scheduler import SlurmFound

WRITE = "slurm.gpu.gres: 8 in the answers, or null where Slurm counts no GPUs"


def is_open(answers: Answers) -> bool:
    """Whether GPU jobs would ask for no GPUs, as nothing says how many a node has."""
    if answers.cluster_type != "slurm" or answers.gpu_type == CPU:
        return False
    own = answers.gpu_types.get(answers.gpu_type)
    return (own is None or own.gres is None) and (answers.slurm or SlurmConfig()).leaves_gpus_open


def filled(answers: Answers, found: SlurmFound) -> tuple[Answers, list[str]]:
    """``answers`` with the GRES of their partition's nodes where they leave it open, and what to know of it.

    A partition of several kinds gets that of the answers' GPU type. ``answers`` are settled but for this.
    """
    if not is_open(answers):
        return answers, []
    if found.fault:
        return answers, [f"slurm.gpu.gres is not said, and Slurm does not answer: jobs would see no GPU. Write {WRITE}"]
    slurm = answers.slurm or SlurmConfig()
    kinds = found.gpu_kinds(str(slurm.option("partition") or ""))
    if not kinds:
        return answers, []
    named = {kind.gres_type for kind in kinds}
    own = [kind for kind in kinds if kind.gpu_type == answers.gpu_type] if len(named) > 1 else kinds
    if not own:
        shown = ", ".join(f"{kind.gres_type}:{kind.per_node}" for kind in kinds)
        return answers, [f"slurm.gpu.gres is not said, and Slurm shows {shown}: write the one that is meant"]
    count = min(kind.per_node for kind in own)
    gres: str | int = f"{own[0].gres_type}:{count}" if len(named) > 1 else count
    return _with(answers, gres), [f"slurm.gpu.gres: {gres}, as Slurm shows it"]


def recalled(answers: Answers, before: Mapping[str, Any]) -> Answers:
    """``answers`` with the GRES that was found out when the configuration ``before`` was written."""
    options = (before.get("slurm") or {}).get("gpu") or {}
    return _with(answers, options["gres"]) if is_open(answers) and "gres" in options else answers


def _with(answers: Answers, gres: str | int | None) -> Answers:
    slurm = answers.slurm or SlurmConfig()
    return replace(answers, slurm=replace(slurm, gpu=SlurmOptions({**slurm.gpu.given, "gres": gres})))
