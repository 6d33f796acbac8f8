# SPDX-License-Identifier: Apache-2.0
"""The site of an installation: detects what the answers do not give, and makes the hooks' Site."""

import platform
import shutil
from dataclasses import replace
from typing import Literal, cast

from llmb.config import ClusterConfig
from llmb.errors import Fault, InputFaults, LlmbError
from llmb.runs.launch import Site
from llmb.text import typed
from llmb.workload.gpus import CPU, known_types
from llmb_installer.answers import ARCHITECTURES, AUTO, Answers
from llmb_installer.answers.read import without_nulls
from llmb_installer.detect import scheduler, slurm_fit
from llmb_installer.detect.machine import find_gpu, likeliest

GPU_UNDETECTED, ARCHITECTURE_UNDETECTED = "gpu-type-undetected", "node-architecture-undetected"
_ARM = ("gb200",)  # GPU types whose nodes have NVIDIA's Arm processor


def settle(answers: Answers) -> tuple[Answers, list[str]]:
    """``answers`` with each ``auto`` replaced by what was detected, and notes for the user.

    On Slurm the architecture and GPUs are those of the compute nodes, never of this machine. Raises InputFaults with
    the keys that cannot be detected.
    """
    notes: list[str] = []
    if answers.venv_type == AUTO:
        answers = replace(answers, venv_type="uv" if shutil.which("uv") else "venv")
    if answers.cluster_type == "slurm" and (
        AUTO in (answers.gpu_type, answers.node_architecture) or slurm_fit.needs_gres(answers)
    ):
        return _settle_slurm(answers)
    if answers.cluster_type == "runai" and answers.node_architecture == AUTO:
        machine = "aarch64" if answers.gpu_type in _ARM else "x86_64"
        notes.append(f"node_architecture: {machine}, usual for {answers.gpu_type}")
        return _on(answers, machine), notes
    if answers.cluster_type == "local":
        gpu = find_gpu(answers.gpu_type)
        notes += [gpu.note] if gpu.note else []
        if answers.gpu_type not in (AUTO, CPU) and shutil.which("nvidia-smi") is None:
            notes.append(f"gpu_type is {answers.gpu_type}, but no GPU was detected here: there is no nvidia-smi")
        answers = replace(answers, gpu_type=gpu.gpu_type)
        return (_on(answers, platform.machine()) if answers.node_architecture == AUTO else answers), notes
    return answers, notes


def _on(answers: Answers, machine: str) -> Answers:
    if machine not in ARCHITECTURES:
        hint = f"install for {' or '.join(ARCHITECTURES)}"
        raise LlmbError(f"llmb does not support {machine}", hint=hint, code="architecture-unsupported", value=machine)
    return replace(answers, node_architecture=cast(Literal["x86_64", "aarch64"], machine))


def _settle_slurm(answers: Answers) -> tuple[Answers, list[str]]:
    """The GPU type, GRES and architecture of the answers' partition, by default Slurm's default partition."""
    found = scheduler.find_slurm(nodes_only=True)
    if faults := slurm_fit.partition_faults(answers, found):  # nothing can be detected in an unknown partition
        raise InputFaults(faults)
    partition = str(answers.slurm.option("partition") or "") if answers.slurm is not None else ""
    if answers.gpu_type == AUTO:
        types = found.gpu_types_of(partition)
        if len(types) == 1 and types[0] in (*known_types(), *answers.gpu_types):
            answers = replace(answers, gpu_type=types[0])
        elif len(types) == 1:
            faults.append(
                Fault(
                    place="gpu_type",
                    message=f"llmb has no configurations for {types[0]}",
                    hint=f"use those of a similar GPU: 'gpu_types: {{{types[0]}: {{like: {likeliest(types[0])}}}}}'",
                    code="gpu-type-unknown",
                    key="gpu_type",
                    value=types[0],
                )
            )
        else:
            reason = f"Slurm has {', '.join(types)}" if types else found.fault or "Slurm has no GPU type there"
            faults.append(_undetected(GPU_UNDETECTED, "gpu_type", reason, "gpu_type: h100", found))
    if answers.node_architecture == AUTO:
        machine = found.architecture_of(partition)
        if machine is not None:
            answers = _on(answers, machine)
        else:
            reason = found.fault or "no node there reports it"
            answer = f"node_architecture: {' or '.join(ARCHITECTURES)}"
            faults.append(_undetected(ARCHITECTURE_UNDETECTED, "node_architecture", reason, answer, found))
    if faults:
        raise InputFaults(faults)
    return slurm_fit.with_gres(answers, found)


def _undetected(code: str, key: str, reason: str, answer: str, found: scheduler.SlurmFound) -> Fault:
    """The fault of a key that has to be given; where Slurm does not answer, the hint also names the doctor."""
    hint = f"write '{answer}'; llmb-install doctor shows why Slurm does not answer" if found.fault else answer
    return Fault(place=key, message=f"cannot be detected ({reason}); set it", hint=hint, code=code, key=key)


def cluster_of(answers: Answers, gpu_type: str) -> ClusterConfig:
    """The cluster that the answers describe, with nothing installed yet."""
    return ClusterConfig(
        cluster_type=answers.cluster_type,
        gpu_type=gpu_type,
        gpu_types=answers.gpu_types,
        slurm=answers.slurm,
        runai=answers.runai,
        llmb_install=answers.install,
    )


def site_of(answers: Answers, gpu_type: str) -> Site:
    """The site that plugins are asked about, as llmb-run will see it. ``answers`` are settled."""
    config = cluster_of(answers, gpu_type)
    is_auto = answers.node_architecture == AUTO and answers.cluster_type == "local"
    return Site(
        cluster_type=answers.cluster_type,
        gpu_type=config.rows_for(gpu_type),
        gpus_per_node=config.gpu(gpu_type).gpus_per_node,
        node_architecture=platform.machine() if is_auto else answers.node_architecture,
        install=answers.install,
        container=answers.uses_images,
        environment=answers.environment,
        settings={**without_nulls(typed.to_data(answers.versions)), "tokenizer": answers.tokenizer},
    )
