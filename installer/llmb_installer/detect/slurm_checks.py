# SPDX-License-Identifier: Apache-2.0
"""Compares answers with the Slurm cluster here: its partitions, accounts, GPUs and plugins."""

from collections.abc import Iterable, Iterator
from typing import Any

from llmb.config.slurm import NO_MPI, SlurmConfig
from llmb.errors import Fault, InputFaults
from llmb.text import yamlfile
from llmb.text.names import nearest, suggest
from llmb.workload.gpus import CPU, known_types
from llmb_installer.answers.layers import value_at, with_layer
from llmb_installer.answers.schema import Answers
from llmb_installer.cluster_types import type_in
from llmb_installer.detect import scheduler
from llmb_installer.detect.site import cluster_of
from llmb_installer.record import option_of


def doctor_command(answers: Answers) -> str:
    """The command that examines this machine and its cluster."""
    return f"llmb-install doctor{option_of(answers.install)}"


_KINDS = ("gpu", "cpu")
_OPTIONS = tuple(f"slurm.{kind}{option}" for option in ("partition", "account") for kind in ("", "gpu.", "cpu."))


def check_slurm(answers: Answers) -> list[str]:
    """Notes for the user about the cluster here. A machine without Slurm can install too.

    Raises InputFaults for what cannot work, each fault at its key.
    """
    found = scheduler.find_slurm()
    if found.fault:
        cause = found.fault if "sinfo" in found.commands else "there is no sinfo here"
        return [
            f"Slurm does not answer, so jobs cannot be submitted from here: {cause} (see: {doctor_command(answers)})"
        ]
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


def with_container(document: yamlfile.Document) -> tuple[yamlfile.Document, list[str]]:
    """Answers that do not set ``slurm.container``, with what works on the Slurm cluster here; and a note on it."""
    kind, own = type_in(document.data), value_at(document.data, "slurm")
    is_slurm = kind is not None and kind.key == "slurm"
    if not is_slurm or not isinstance(own, dict | None) or "container" in (own or {}):
        return document, []
    found = scheduler.find_slurm()
    if found.fault or found.pyxis or "srun" not in found.commands:
        return document, []
    note = "slurm.container: none, detected: srun has no option --container-image (pyxis)"
    return with_layer(document, {"slurm": {"container": "none"}}, "detected"), [note]


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


def in_words(partition: str) -> str:
    """One or more partitions, Slurm's default for an empty text."""
    return f"partition {partition}" if partition else "the default partition"


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
            f"Slurm shows no GPUs, as GRES, in {in_words(partition)}: llmb cannot check that its nodes have "
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
