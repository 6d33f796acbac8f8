# SPDX-License-Identifier: Apache-2.0
"""The site of an installation: detects what the answers do not give, and makes the hooks' Site."""

import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from llmb.config import ClusterConfig
from llmb.config.slurm import NO_MPI, SlurmConfig, SlurmOptions
from llmb.errors import Fault, InputFaults, LlmbError
from llmb.runs.launch import Site
from llmb.text import typed
from llmb.text.names import nearest, suggest
from llmb.workload.gpus import CPU, known_types
from llmb_installer.answers import ARCHITECTURES, AUTO, Answers, value_at, without_nulls
from llmb_installer.detect import scheduler
from llmb_installer.detect.machine import find_gpu, likeliest
from llmb_installer.record import option_of

GPU_UNDETECTED, ARCHITECTURE_UNDETECTED = "gpu-type-undetected", "node-architecture-undetected"
_ARM = ("gb200", "gb300")  # GPU types whose nodes have NVIDIA's Arm processor


def settle(answers: Answers) -> tuple[Answers, list[str]]:
    """``answers`` with each ``auto`` replaced by what was detected, and notes for the user.

    On Slurm the architecture and GPUs are those of the compute nodes, never of this machine. Raises InputFaults with
    the keys that cannot be detected.
    """
    notes: list[str] = []
    if answers.venv_type == AUTO:
        answers = replace(answers, venv_type="uv" if shutil.which("uv") else "venv")
    nodes = answers.traits.nodes
    if nodes == "scheduler" and (AUTO in (answers.gpu_type, answers.node_architecture) or needs_gres(answers)):
        return _settle_slurm(answers)
    if nodes == "answers" and answers.node_architecture == AUTO:
        machine = "aarch64" if answers.gpu_type in _ARM else "x86_64"
        notes.append(f"node_architecture: {machine}, usual for {answers.gpu_type}")
        return _on(answers, machine), notes
    if nodes == "this-machine":
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
    if faults := partition_faults(answers, found):  # nothing can be detected in an unknown partition
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
            faults.append(_undetected_gpu(answers, types, partition, found))
    if answers.node_architecture == AUTO:
        machine = found.architecture_of(partition)
        if machine is not None:
            answers = _on(answers, machine)
        else:
            reason = found.fault or "no node there reports it"
            answer = f"node_architecture: {' or '.join(ARCHITECTURES)}"
            faults.append(_undetected(answers, ARCHITECTURE_UNDETECTED, "node_architecture", reason, answer, found))
    if faults:
        raise InputFaults(faults)
    answers, notes = with_gres(answers, found)
    known = known_types().get(answers.gpu_type)
    if known is not None and known.like is not None and answers.gpu_type not in answers.gpu_types:
        own = f"gpu_types: {{{answers.gpu_type}: {{like: {known.like}}}}}"
        notes = [*notes, f"gpu_type {answers.gpu_type}: for workloads without rows of their own, set '{own}'"]
    return answers, notes


def _doctor(answers: Answers) -> str:
    return f"llmb-install doctor{option_of(answers.install)}"


def _in_words(partition: str) -> str:
    return f"partition {partition}" if partition else "the default partition"


def _undetected_gpu(answers: Answers, types: Sequence[str], partition: str, found: scheduler.SlurmFound) -> Fault:
    """The fault of a GPU type that Slurm does not tell: its value is the type to propose, cpu without GPUs."""
    proposed, where = "h100", _in_words(partition)
    if types:
        reason, proposed = f"Slurm has {', '.join(types)} in {where}", types[0]
    elif found.fault:
        reason = found.fault
    elif found.gpu_kinds(partition):
        reason = f"Slurm does not name the type of the GPUs in {where}"
    else:
        reason, proposed = f"Slurm shows no GPUs, as GRES, in {where}", CPU
    others = ", or the type of its GPUs, such as h100" if proposed == CPU else ""
    fault = _undetected(answers, GPU_UNDETECTED, "gpu_type", reason, f"gpu_type: {proposed}{others}", found)
    return replace(fault, value=proposed)


def _undetected(answers: Answers, code: str, key: str, reason: str, answer: str, found: scheduler.SlurmFound) -> Fault:
    """The fault of a key that has to be given; where Slurm does not answer, the hint also names the doctor."""
    hint = f"write '{answer}'; {_doctor(answers)} shows why Slurm does not answer" if found.fault else answer
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
        kind=answers.kind,
        own_section=answers.own_section,
    )


def site_of(answers: Answers, gpu_type: str) -> Site:
    """The site that plugins are asked about, as llmb-run will see it. ``answers`` are settled."""
    config = cluster_of(answers, gpu_type)
    is_auto = answers.node_architecture == AUTO and answers.traits.nodes == "this-machine"
    return Site(
        cluster_type=answers.cluster_type,
        traits=answers.traits,
        gpu_type=config.rows_for(gpu_type),
        gpus_per_node=config.gpu(gpu_type).gpus_per_node,
        node_architecture=platform.machine() if is_auto else answers.node_architecture,
        install=answers.install,
        container=answers.uses_images,
        environment=answers.environment,
        settings=_settings(answers),
        plugins=answers.plugins,
    )


def _settings(answers: Answers) -> dict[str, str]:
    """What plugins read of the answers: versions, the tokenizer and the framework."""
    release = {} if answers.bridge_release is None else {"bridge_release": answers.bridge_release}
    versions: dict[str, str] = without_nulls(typed.to_data(answers.versions))
    return {**versions, "tokenizer": answers.tokenizer, "framework": answers.framework, **release}


_KINDS = ("gpu", "cpu")
_OPTIONS = tuple(f"slurm.{kind}{option}" for option in ("partition", "account") for kind in ("", "gpu.", "cpu."))


def check_slurm(answers: Answers) -> list[str]:
    """Notes for the user about the cluster here. A machine without Slurm can install too.

    Raises InputFaults for what cannot work, each fault at its key.
    """
    found = scheduler.find_slurm()
    if found.fault:
        cause = found.fault if "sinfo" in found.commands else "there is no sinfo here"
        return [f"Slurm does not answer, so jobs cannot be submitted from here: {cause} (see: {_doctor(answers)})"]
    if faults := partition_faults(answers, found):
        raise InputFaults(faults)
    return [*notes_on(answers, found)]


def check_given(data: Any, found: scheduler.SlurmFound | None) -> tuple[list[Fault], list[str]]:
    """Faults and notes for the ``data`` of answers that are still incomplete or invalid.

    With ``found`` None the cluster here is asked, if the data names anything to ask about.
    """
    types = data.get("gpu_types") if isinstance(data, dict) else None
    keys = [*_OPTIONS, *(f"gpu_types.{name}.partition" for name in (types if isinstance(types, dict) else ()))]
    named = {key: str(value) for key in keys if isinstance(value := value_at(data, key), str | int)}
    if not named:
        return [], []
    found = found if found is not None else scheduler.find_slurm()
    if found.fault:
        return [], []
    partitions = [(key, name) for key, name in named.items() if key.endswith("partition")]
    account = named.get("slurm.gpu.account") or named.get("slurm.account")
    return _unknown_partitions(partitions, found), [*_account_notes(account, found)]


def partition_faults(answers: Answers, found: scheduler.SlurmFound) -> list[Fault]:
    """A fault for each partition in the answers that this cluster does not have."""
    return _unknown_partitions(_partitions(answers), found)


def _unknown_partitions(named: Iterable[tuple[str, str]], found: scheduler.SlurmFound) -> list[Fault]:
    return [
        Fault(
            place=key,
            message=f"Slurm has no partition '{name}'",
            hint=suggest(name, [*found.partitions]),
            code="partition-unknown",
            key=key,
            value=name,
        )
        for key, names in named
        for name in names.split(",")
        if found.partitions and name not in found.partitions
    ]


def _partitions(answers: Answers) -> Iterator[tuple[str, str]]:
    """Each key of the answers that names partitions, with their names."""
    slurm = answers.slurm or SlurmConfig()
    named: dict[str, object] = {"slurm.partition": slurm.partition}
    named |= {f"slurm.{kind}.partition": getattr(slurm, kind).given.get("partition") for kind in _KINDS}
    named |= {f"gpu_types.{name}.partition": own.partition for name, own in answers.gpu_types.items()}
    return ((key, str(names)) for key, names in named.items() if names is not None)


def notes_on(answers: Answers, found: scheduler.SlurmFound) -> Iterator[str]:
    """What llmb-run would refuse here, and what may work elsewhere, later, or for another user."""
    slurm = answers.slurm or SlurmConfig()
    if slurm.container == "pyxis" and not found.pyxis and "srun" in found.commands:
        yield (
            "slurm.container is pyxis, but srun has no option --container-image here: llmb-run would refuse every "
            "job. Set 'slurm: {container: none}' to run jobs from a Python environment"
        )
    if slurm.mpi is not None and found.mpi and slurm.mpi not in (*found.mpi, NO_MPI):
        yield f"slurm.mpi: srun has no MPI type '{slurm.mpi}' here; it has {', '.join(found.mpi)}"
    partition = str(slurm.option("partition") or "")
    kinds = found.gpu_kinds(partition)
    if found.partitions and not kinds and cluster_of(answers, answers.gpu_type).rows_for(answers.gpu_type) != CPU:
        yield (
            f"Slurm shows no GPUs, as GRES, in {_in_words(partition)}: llmb cannot check that its nodes have "
            f"{answers.gpu_type}. 'gpu_type: cpu' runs the sizes for CPUs"
        )
    own, config = answers.gpu_types.get(answers.gpu_type), cluster_of(answers, answers.gpu_type)
    if own is None or own.gpus_per_node is None:
        kinds = [kind for kind in kinds if kind.gpu_type in (answers.gpu_type, None)]
        yield from differing_gpus(answers.gpu_type, config.rows_for(answers.gpu_type), kinds)
    account = slurm.option("account")
    yield from _account_notes(str(account) if account is not None else None, found)


def differing_gpus(gpu_type: str, known: str, kinds: Iterable[scheduler.GpuKind]) -> Iterator[str]:
    """A note for each of ``kinds`` with another number of GPUs of a node than llmb knows for ``known``.

    ``known`` is the known type whose configurations apply to ``gpu_type``.
    """
    usual = known_types().get(known)
    for kind in kinds:
        if usual is not None and known != CPU and kind.per_node != usual.gpus_per_node:
            yield (
                f"a node of partition {kind.partition} has {kind.per_node} GPUs, but {known} usually has "
                f"{usual.gpus_per_node}: check that gpu_type {gpu_type} is right; jobs will use {kind.per_node} of them"
            )


def _account_notes(account: str | None, found: scheduler.SlurmFound) -> Iterator[str]:
    if account is not None and found.accounts and account not in found.accounts:
        near = nearest(account, found.accounts)
        fix = f"did you mean '{near}'?" if near is not None else f"yours are {', '.join(found.accounts)}"
        yield f"slurm.account: '{account}' is not one of your accounts; {fix}"


def needs_gres(answers: Answers) -> bool:
    """Whether GPU jobs would request no GPUs, because no answer gives their number."""
    if not answers.traits.sbatch_options or answers.gpu_type == CPU:
        return False
    own = answers.gpu_types.get(answers.gpu_type)
    return (own is None or own.gres is None) and (answers.slurm or SlurmConfig()).leaves_gpus_open


def with_gres(answers: Answers, found: scheduler.SlurmFound) -> tuple[Answers, list[str]]:
    """``answers`` with the GRES of their partition's nodes, and notes; ``answers`` are settled otherwise.

    In a partition with several kinds of GPUs the GRES is that of the answers' GPU type.
    """
    if not needs_gres(answers):
        return answers, []
    missing = "slurm.gpu.gres is missing"
    if found.fault:
        fix = "set slurm.gpu.gres, such as 8, or null where Slurm has no GPUs as GRES"
        return answers, [f"{missing} and Slurm does not answer: jobs would see no GPU; {fix}"]
    slurm = answers.slurm or SlurmConfig()
    kinds = found.gpu_kinds(str(slurm.option("partition") or ""))
    if not kinds:
        return answers, []
    types = {kind.gres_type for kind in kinds}
    own = [kind for kind in kinds if kind.gpu_type == answers.gpu_type] if len(types) > 1 else kinds
    if not own:
        shown = ", ".join(f"{kind.gres_type}:{kind.per_node}" for kind in kinds)
        return answers, [f"{missing} and the partition has {shown}: set one of them"]
    count = min(kind.per_node for kind in own)
    gres: str | int = f"{own[0].gres_type}:{count}" if len(types) > 1 else count
    return _with_gres(answers, gres), [f"slurm.gpu.gres: {gres}, detected from Slurm"]


def with_gres_of(answers: Answers, before: Mapping[str, Any]) -> Answers:
    """``answers`` with the GRES that was detected for the earlier configuration ``before``."""
    options = (before.get("slurm") or {}).get("gpu") or {}
    return _with_gres(answers, options["gres"]) if needs_gres(answers) and "gres" in options else answers


def _with_gres(answers: Answers, gres: str | int | None) -> Answers:
    slurm = answers.slurm or SlurmConfig()
    return replace(answers, slurm=replace(slurm, gpu=SlurmOptions({**slurm.gpu.given, "gres": gres})))
