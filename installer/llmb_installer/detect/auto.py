# SPDX-License-Identifier: Apache-2.0
"""Replaces each ``auto`` of the answers, and a missing GRES, by what is detected here."""

import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from llmb.contract.gpus import CPU, known_types
from llmb.contract.sbatch import SlurmConfig, SlurmOptions
from llmb.errors import Fault, InputFaults, LlmbError
from llmb_installer.answers.schema import ARCHITECTURES, AUTO, Answers
from llmb_installer.detect import scheduler
from llmb_installer.detect.machine import find_gpu, find_likeliest
from llmb_installer.detect.slurm_checks import check_partitions, doctor_command, name_partition

GPU_UNDETECTED, ARCHITECTURE_UNDETECTED = "gpu-type-undetected", "node-architecture-undetected"
_ARM = ("gb200", "gb300")  # GPU types whose nodes have NVIDIA's Arm processor


def resolve_auto(answers: Answers) -> tuple[Answers, list[str]]:
    """Replace each ``auto`` of ``answers`` by what is detected. Also return notes for the user.

    On Slurm the architecture and GPUs are of the compute nodes, never of this machine. Raises
    InputFaults with the keys that cannot be detected.
    """
    notes: list[str] = []
    if answers.venv_type == AUTO:
        answers = replace(answers, venv_type="uv" if shutil.which("uv") else "venv")
    nodes = answers.traits.nodes
    if nodes == "scheduler" and (
        AUTO in (answers.gpu_type, answers.node_architecture) or needs_gres(answers)
    ):
        return _resolve_slurm(answers)
    if nodes == "answers" and answers.node_architecture == AUTO:
        machine = "aarch64" if answers.gpu_type in _ARM else "x86_64"
        notes.append(f"node_architecture: {machine}, usual for {answers.gpu_type}")
        return _on(answers, machine), notes
    if nodes == "this-machine":
        gpu = find_gpu(answers.gpu_type)
        notes += [gpu.note] if gpu.note else []
        if answers.gpu_type not in (AUTO, CPU) and shutil.which("nvidia-smi") is None:
            notes.append(
                f"gpu_type is {answers.gpu_type}, but no GPU was detected here: there is no"
                " nvidia-smi"
            )
        answers = replace(answers, gpu_type=gpu.gpu_type)
        return (
            _on(answers, platform.machine()) if answers.node_architecture == AUTO else answers
        ), notes
    return answers, notes


def _on(answers: Answers, machine: str) -> Answers:
    if machine not in ARCHITECTURES:
        raise LlmbError(
            f"llmb does not support {machine}",
            hint=f"install for {' or '.join(ARCHITECTURES)}",
            code="architecture-unsupported",
            value=machine,
        )
    return replace(answers, node_architecture=cast(Literal["x86_64", "aarch64"], machine))


def _resolve_slurm(answers: Answers) -> tuple[Answers, list[str]]:
    """Detect GPU type, GRES and architecture in the answers' partition, or in Slurm's default."""
    cluster = scheduler.find_slurm(
        nodes_only=True, cluster=answers.slurm.clusters if answers.slurm is not None else None
    )
    # nothing can be detected in an unknown partition
    if faults := check_partitions(answers, cluster):
        raise InputFaults(faults)
    partition = str(answers.slurm.option("partition") or "") if answers.slurm is not None else ""
    if answers.gpu_type == AUTO:
        types = cluster.gpu_types_of(partition)
        if len(types) == 1 and types[0] in (*known_types(), *answers.gpu_types):
            answers = replace(answers, gpu_type=types[0])
        elif len(types) == 1:
            faults.append(
                Fault(
                    place="gpu_type",
                    message=f"llmb has no configurations for {types[0]}",
                    hint=(
                        f"use those of a similar GPU: 'gpu_types: {{{types[0]}: {{like:"
                        f" {find_likeliest(types[0])}}}}}'"
                    ),
                    code="gpu-type-unknown",
                    key="gpu_type",
                    value=types[0],
                )
            )
        else:
            faults.append(_undetected_gpu(answers, types, partition, cluster))
    if answers.node_architecture == AUTO:
        machine = cluster.architecture_of(partition)
        if machine is not None:
            answers = _on(answers, machine)
        else:
            hidden = "Slurm does not show its nodes to you (PrivateData)"
            reason = cluster.fault or (hidden if cluster.is_hidden else "no node there reports it")
            answer = f"node_architecture: {' or '.join(ARCHITECTURES)}"
            faults.append(
                _undetected(
                    answers, ARCHITECTURE_UNDETECTED, "node_architecture", reason, answer, cluster
                )
            )
    if faults:
        raise InputFaults(faults)
    answers, notes = add_gres(answers, cluster)
    gpu = known_types().get(answers.gpu_type)
    if gpu is not None and gpu.like is not None and answers.gpu_type not in answers.gpu_types:
        setting = f"gpu_types: {{{answers.gpu_type}: {{like: {gpu.like}}}}}"
        notes = [
            *notes,
            f"gpu_type {answers.gpu_type}: for workloads without rows of their own, set"
            f" '{setting}'",
        ]
    return answers, notes


def _undetected_gpu(
    answers: Answers, types: Sequence[str], partition: str, cluster: scheduler.SlurmFound
) -> Fault:
    """Return the fault of a GPU type that Slurm does not report.

    Its value is the type to propose, cpu without GPUs.
    """
    proposed, place = "h100", name_partition(partition)
    if types:
        reason, proposed = f"Slurm has {', '.join(types)} in {place}", types[0]
    elif cluster.fault:
        reason = cluster.fault
    elif cluster.is_hidden:
        reason = "Slurm does not show its nodes to you (PrivateData)"
    elif cluster.gpu_kinds(partition):
        reason = f"Slurm does not name the type of the GPUs in {place}"
    else:
        reason, proposed = f"Slurm shows no GPUs, as GRES, in {place}", CPU
    alternative = ", or the type of its GPUs, such as h100" if proposed == CPU else ""
    fault = _undetected(
        answers, GPU_UNDETECTED, "gpu_type", reason, f"gpu_type: {proposed}{alternative}", cluster
    )
    return replace(fault, value=proposed)


def _undetected(
    answers: Answers, code: str, key: str, reason: str, answer: str, cluster: scheduler.SlurmFound
) -> Fault:
    """Return the fault of a key that must be set. The hint names the doctor if Slurm is silent."""
    hint = (
        f"write '{answer}'; {doctor_command(answers)} shows why Slurm does not answer"
        if cluster.fault
        else answer
    )
    return Fault(
        place=key, message=f"cannot be detected ({reason}); set it", hint=hint, code=code, key=key
    )


def needs_gres(answers: Answers) -> bool:
    """Return True if GPU jobs would request no GPUs, because no answer gives their number."""
    if not answers.traits.sbatch_options or answers.gpu_type == CPU:
        return False
    settings = answers.gpu_types.get(answers.gpu_type)
    return (settings is None or settings.gres is None) and (
        answers.slurm or SlurmConfig()
    ).leaves_gpus_open


def add_gres(answers: Answers, cluster: scheduler.SlurmFound) -> tuple[Answers, list[str]]:
    """Add the GRES of the partition's nodes to ``answers`` without ``auto``. Also return notes.

    In a partition with several kinds of GPUs the GRES is of the answers' GPU type.
    """
    if not needs_gres(answers):
        return answers, []
    missing = "slurm.gpu.gres is missing"
    if cluster.fault:
        fix = "set slurm.gpu.gres, such as 8, or null where Slurm has no GPUs as GRES"
        return answers, [f"{missing} and Slurm does not answer: jobs would see no GPU; {fix}"]
    if cluster.is_hidden:
        fix = "set slurm.gpu.gres, such as 8, or null where Slurm has no GPUs as GRES"
        return answers, [f"{missing} and Slurm hides its nodes: jobs would see no GPU; {fix}"]
    slurm = answers.slurm or SlurmConfig()
    kinds = cluster.gpu_kinds(str(slurm.option("partition") or ""))
    if not kinds:
        return answers, []
    types = {kind.gres_type for kind in kinds}
    matches = (
        [kind for kind in kinds if kind.gpu_type == answers.gpu_type] if len(types) > 1 else kinds
    )
    if not matches:
        shown = ", ".join(f"{kind.gres_type}:{kind.per_node}" for kind in kinds)
        return answers, [f"{missing} and the partition has {shown}: set one of them"]
    count = min(kind.per_node for kind in matches)
    gres: str | int = f"{matches[0].gres_type}:{count}" if len(types) > 1 else count
    return _set_gres(answers, gres), [f"slurm.gpu.gres: {gres}, detected from Slurm"]


def recall_gres(answers: Answers, before: Mapping[str, Any]) -> Answers:
    """``answers`` with the GRES that was detected for the earlier configuration ``before``."""
    options = (before.get("slurm") or {}).get("gpu") or {}
    return (
        _set_gres(answers, options["gres"])
        if needs_gres(answers) and "gres" in options
        else answers
    )


def _set_gres(answers: Answers, gres: str | int | None) -> Answers:
    slurm = answers.slurm or SlurmConfig()
    return answers.with_slurm(replace(slurm, gpu=SlurmOptions({**slurm.gpu.given, "gres": gres})))
