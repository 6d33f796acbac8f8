# SPDX-License-Identifier: Apache-2.0
"""What the place is that an installation is for: finds out what the answers leave open, and makes the hooks' Site."""

import platform
import shutil
from dataclasses import dataclass, replace
from typing import Literal, cast

from llmb.config import ClusterConfig
from llmb.errors import Fault, InputFaults, LlmbError
from llmb.runs.launch import Site
from llmb.system import shell
from llmb.text import typed
from llmb.workload.gpus import CPU, known_types
from llmb_installer.answers import ARCHITECTURES, AUTO, Answers
from llmb_installer.answers.read import without_nulls
from llmb_installer.detect import gres
from llmb_installer.detect.gpu_names import gpu_type_of, likeliest

ANSWER_WITHIN = 30.0  # seconds; nvidia-smi is slow where the driver's persistence mode is off
_ARM = ("gb200",)  # GPU types whose nodes have NVIDIA's own processor


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGpu:
    """The GPU type to install for; ``note`` says what the user should know of how it was found."""

    gpu_type: str
    note: str = ""


def settle(answers: Answers) -> tuple[Answers, list[str]]:
    """``answers`` with every ``auto`` found out, and what the user should know of it.

    On Slurm the compute nodes are asked about, never this machine. Raises InputFaults with the keys that have to be
    given.
    """
    notes: list[str] = []
    if answers.venv_type == AUTO:
        answers = replace(answers, venv_type="uv" if shutil.which("uv") else "venv")
    if answers.cluster_type == "slurm" and (
        AUTO in (answers.gpu_type, answers.node_architecture) or gres.is_open(answers)
    ):
        return _settle_slurm(answers)
    if answers.cluster_type == "runai" and answers.node_architecture == AUTO:
        machine = "aarch64" if answers.gpu_type in _ARM else "x86_64"
        notes.append(f"node_architecture: {machine}, as usual for {answers.gpu_type}")
        return _on(answers, machine), notes
    if answers.cluster_type == "local":
        gpu = find_gpu(answers.gpu_type)
        notes += [gpu.note] if gpu.note else []
        if answers.gpu_type not in (AUTO, CPU) and shutil.which("nvidia-smi") is None:
            notes.append(f"gpu_type {answers.gpu_type}: this machine shows no GPU (there is no nvidia-smi)")
        here = platform.machine()
        answers = replace(answers, gpu_type=gpu.gpu_type)
        return (_on(answers, here) if answers.node_architecture == AUTO else answers), notes
    return answers, notes


def _on(answers: Answers, machine: str) -> Answers:
    if machine not in ARCHITECTURES:
        raise LlmbError(f"no workload is built for machines of type {machine}", hint=f"{' or '.join(ARCHITECTURES)}")
    return replace(answers, node_architecture=cast(Literal["x86_64", "aarch64"], machine))


def _settle_slurm(answers: Answers) -> tuple[Answers, list[str]]:
    """The GPU type, GRES and architecture of the partition that the answers name, else of the default one."""
    from llmb_installer.detect.scheduler import find_slurm
    from llmb_installer.detect.slurm_fit import partition_faults

    found = find_slurm(nodes_alone=True)
    if wrong := partition_faults(answers, found):  # nothing can be said of one that is not there
        raise InputFaults(wrong)
    partition = str(answers.slurm.option("partition") or "") if answers.slurm is not None else ""
    faults = []
    if answers.gpu_type == AUTO:
        types = found.gpu_types_of(partition)
        if len(types) == 1 and types[0] in (*known_types(), *answers.gpu_types):
            answers = replace(answers, gpu_type=types[0])
        elif len(types) == 1:
            hint = f"gpu_types: {{{types[0]}: {{like: {likeliest(types[0])}}}}}"
            faults.append(Fault(place="gpu_type", message=f"llmb has no configurations for {types[0]}", hint=hint))
        else:
            said = f"Slurm shows {', '.join(types)}" if types else found.fault or "Slurm shows no GPU type there"
            hint = _hint("gpu_type: h100", found.fault)
            faults.append(Fault(place="gpu_type", message=f"cannot be found out: {said}", hint=hint))
    if answers.node_architecture == AUTO:
        machine = found.architecture_of(partition)
        if machine is not None:
            answers = _on(answers, machine)
        else:
            said = found.fault or "no node there says what it is"
            hint = _hint(f"node_architecture: {' or '.join(ARCHITECTURES)}", found.fault)
            faults.append(Fault(place="node_architecture", message=f"cannot be found out: {said}", hint=hint))
    if faults:
        raise InputFaults(faults)
    return gres.filled(answers, found)


def _hint(answer: str, fault: str) -> str:
    """How to give the answer; where Slurm itself could not be asked, also who explains that."""
    return f"{answer} in the answers; llmb-install doctor tells why Slurm does not answer" if fault else answer


def find_gpu(answer: str) -> FoundGpu:
    """The GPU type of the answer; for ``auto`` that of this machine's first GPU, ``cpu`` where there is none."""
    if answer != AUTO:
        return FoundGpu(gpu_type=answer)
    if shutil.which("nvidia-smi") is None:
        return FoundGpu(gpu_type=CPU)
    asked = shell.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout=ANSWER_WITHIN)
    if asked.code != 0:
        said = (asked.out + asked.err).strip().splitlines()
        return FoundGpu(gpu_type=CPU, note=f"nvidia-smi finds no GPU ({said[0] if said else asked.code}): type cpu")
    return type_of(asked.out)


def type_of(names: str) -> FoundGpu:
    """The GPU type of what nvidia-smi prints, one product name a line."""
    name = names.strip().splitlines()[0].strip() if names.strip() else ""
    if (known := gpu_type_of(name)) is not None:
        return FoundGpu(gpu_type=known)
    if not name:
        return FoundGpu(gpu_type=CPU)
    note = f"the GPU '{name}' is of no known type: type cpu; 'gpu_type' in the answers chooses another"
    return FoundGpu(gpu_type=CPU, note=note)


def cluster_of(answers: Answers, gpu_type: str) -> ClusterConfig:
    """The cluster that the answers describe, nothing installed yet."""
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
    open_still = answers.node_architecture == AUTO and answers.cluster_type == "local"
    return Site(
        cluster_type=answers.cluster_type,
        gpu_type=config.rows_for(gpu_type),
        gpus_per_node=config.gpu(gpu_type).gpus_per_node,
        node_architecture=platform.machine() if open_still else answers.node_architecture,
        install=answers.install,
        container=answers.uses_images,
        environment=answers.environment,
        settings={**without_nulls(typed.to_data(answers.versions)), "tokenizer": answers.tokenizer},
    )
