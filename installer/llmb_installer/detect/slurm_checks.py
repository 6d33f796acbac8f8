# SPDX-License-Identifier: Apache-2.0
"""Compares answers with the Slurm cluster here: its partitions, accounts, GPUs and plugins."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llmb.contract.gpus import CPU, known_types
from llmb.contract.sbatch import CLUSTER_VARIABLES, NO_MPI, SlurmConfig, is_one_cluster
from llmb.core import yamlfile
from llmb.core.names import nearest, suggest
from llmb.errors import Fault, InputFaults
from llmb_installer.answers.layers import get_value, override
from llmb_installer.answers.schema import Answers
from llmb_installer.cluster_types import type_in
from llmb_installer.detect import scheduler
from llmb_installer.detect.site import make_cluster_config
from llmb_installer.record import format_option


def doctor_command(answers: Answers) -> str:
    """The command that examines this machine and its cluster."""
    return f"llmb-install doctor{format_option(answers.install)}"


_KINDS = ("gpu", "cpu")
_OPTIONS = tuple(
    f"slurm.{kind}{option}" for option in ("partition", "account") for kind in ("", "gpu.", "cpu.")
)


def check_slurm(answers: Answers) -> list[str]:
    """Notes for the user about the cluster here. A machine without Slurm can install too.

    Raises InputFaults for what cannot work, each fault at its key.
    """
    slurm = answers.slurm or SlurmConfig()
    if fault := differing_variable(slurm.clusters, os.environ):
        raise InputFaults([fault])
    cluster = scheduler.find_slurm(cluster=slurm.clusters)
    if cluster.fault:
        cause = cluster.fault if "sinfo" in cluster.commands else "there is no sinfo here"
        return [
            f"Slurm does not answer, so jobs cannot be submitted from here: {cause} (see:"
            f" {doctor_command(answers)})"
        ]
    if faults := check_partitions(answers, cluster):
        raise InputFaults(faults)
    return [*list_notes(answers, cluster)]


def check_given(data: Any, cluster: scheduler.SlurmFound | None) -> tuple[list[Fault], list[str]]:
    """Faults and notes for the ``data`` of answers that are still incomplete or invalid.

    With ``cluster`` None the cluster here is asked, if the data names anything to ask about.
    """
    types = data.get("gpu_types") if isinstance(data, dict) else None
    keys = [
        *_OPTIONS,
        *(f"gpu_types.{name}.partition" for name in (types if isinstance(types, dict) else ())),
    ]
    named = {
        key: str(value) for key in keys if isinstance(value := get_value(data, key), str | int)
    }
    if not named:
        return [], []
    cluster = cluster or scheduler.find_slurm(cluster=cluster_in(data))
    if cluster.fault:
        return [], []
    partitions = [(key, name) for key, name in named.items() if key.endswith("partition")]
    account = named.get("slurm.gpu.account") or named.get("slurm.account")
    return _unknown_partitions(partitions, cluster), [*_account_notes(account, cluster)]


def cluster_in(data: Any) -> str | None:
    """Return ``slurm.clusters`` of the ``data`` of answers, None without a valid one."""
    name = get_value(data, "slurm.clusters")
    return name if isinstance(name, str) and is_one_cluster(name) else None


def add_cluster(
    document: yamlfile.Document, environ: Mapping[str, str]
) -> tuple[yamlfile.Document, list[str]]:
    """Answers that do not set ``slurm.clusters``, with that of the user's shell, and a note on it.

    Jobs then run on the cluster that the user's own commands of Slurm ask.
    """
    kind, section = type_in(document.data), get_value(document.data, "slurm")
    is_slurm = kind is not None and kind.key == "slurm"
    if not is_slurm or not isinstance(section, dict | None) or "clusters" in (section or {}):
        return document, []
    variable, name = selected_cluster(environ)
    if name is None:
        return document, []
    note = f"slurm.clusters: {name}, from {variable}"
    return override(document, {"slurm": {"clusters": name}}, variable), [note]


def selected_cluster(environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the variable that selects one cluster for Slurm's own commands, and that cluster."""
    for variable in CLUSTER_VARIABLES:
        if (name := environ.get(variable)) and is_one_cluster(name):
            return variable, name
    return "", None


def differing_variable(clusters: str | None, environ: Mapping[str, str]) -> Fault | None:
    """Return the fault of a variable that selects another cluster than ``slurm.clusters``."""
    for variable in CLUSTER_VARIABLES:
        name = environ.get(variable)
        if name and clusters is not None and name != clusters:
            return Fault(
                place="slurm.clusters",
                message=f"{variable} is {name}, and slurm.clusters is {clusters}",
                hint=f"unset {variable}, or set slurm.clusters to the same cluster",
                code="cluster-differs",
                key="slurm.clusters",
                value=name,
            )
    return None


def add_container(document: yamlfile.Document) -> tuple[yamlfile.Document, list[str]]:
    """Answers that do not set ``slurm.container``, with what works on the Slurm cluster here.

    And a note on it.
    """
    kind, section = type_in(document.data), get_value(document.data, "slurm")
    is_slurm = kind is not None and kind.key == "slurm"
    if not is_slurm or not isinstance(section, dict | None) or "container" in (section or {}):
        return document, []
    cluster = scheduler.find_slurm(cluster=cluster_in(document.data))
    if cluster.fault or cluster.pyxis or "srun" not in cluster.commands:
        return document, []
    note = "slurm.container: none, detected: srun has no option --container-image (pyxis)"
    return override(document, {"slurm": {"container": "none"}}, "detected"), [note]


def check_partitions(answers: Answers, cluster: scheduler.SlurmFound) -> list[Fault]:
    """A fault for each partition in the answers that this cluster does not have."""
    return _unknown_partitions(_partitions(answers), cluster)


def _unknown_partitions(
    named: Iterable[tuple[str, str]], cluster: scheduler.SlurmFound
) -> list[Fault]:
    return [
        Fault(
            place=key,
            message=f"Slurm has no partition '{name}'",
            hint=suggest(name, [*cluster.partitions]),
            code="partition-unknown",
            key=key,
            value=name,
        )
        for key, names in named
        for name in names.split(",")
        if cluster.partitions and name not in cluster.partitions
    ]


def _partitions(answers: Answers) -> Iterator[tuple[str, str]]:
    """Each key of the answers that names partitions, with their names."""
    slurm = answers.slurm or SlurmConfig()
    named: dict[str, object] = {"slurm.partition": slurm.partition}
    named |= {
        f"slurm.{kind}.partition": getattr(slurm, kind).given.get("partition") for kind in _KINDS
    }
    named |= {
        f"gpu_types.{name}.partition": settings.partition
        for name, settings in answers.gpu_types.items()
    }
    return ((key, str(names)) for key, names in named.items() if names is not None)


def name_partition(partition: str) -> str:
    """One or more partitions, Slurm's default for an empty text."""
    return f"partition {partition}" if partition else "the default partition"


def list_notes(answers: Answers, cluster: scheduler.SlurmFound) -> Iterator[str]:
    """Yield what llmb-run would refuse here, and what may work later or for another user."""
    slurm = answers.slurm or SlurmConfig()
    if slurm.container == "pyxis" and not cluster.pyxis and "srun" in cluster.commands:
        yield (
            "slurm.container is pyxis, but srun has no option --container-image here: llmb-run"
            " would refuse every job. Set 'slurm: {container: none}' to run jobs from a Python"
            " environment"
        )
    if slurm.mpi is not None and cluster.mpi and slurm.mpi not in (*cluster.mpi, NO_MPI):
        yield f"slurm.mpi: srun has no MPI type '{slurm.mpi}' here; it has {', '.join(cluster.mpi)}"
    partition = str(slurm.option("partition") or "")
    kinds = cluster.gpu_kinds(partition)
    if (
        cluster.partitions
        and not kinds
        and make_cluster_config(answers, answers.gpu_type).rows_for(answers.gpu_type) != CPU
    ):
        yield (
            f"Slurm shows no GPUs, as GRES, in {name_partition(partition)}: llmb cannot check that"
            f" its nodes have {answers.gpu_type}. 'gpu_type: cpu' runs the sizes for CPUs"
        )
    settings, config = (
        answers.gpu_types.get(answers.gpu_type),
        make_cluster_config(answers, answers.gpu_type),
    )
    if settings is None or settings.gpus_per_node is None:
        kinds = [kind for kind in kinds if kind.gpu_type in (answers.gpu_type, None)]
        yield from differing_gpus(answers.gpu_type, config.rows_for(answers.gpu_type), kinds)
    account = slurm.option("account")
    yield from _account_notes(str(account) if account is not None else None, cluster)


def differing_gpus(gpu_type: str, like: str, kinds: Iterable[scheduler.GpuKind]) -> Iterator[str]:
    """Yield a note for each of ``kinds`` with another number of GPUs than ``like`` usually has.

    ``like`` is the known type whose configurations apply to ``gpu_type``.
    """
    usual = known_types().get(like)
    for kind in kinds:
        if len(kind.counts) > 1:
            yield mixed_note(kind)
        if usual is not None and like != CPU and kind.per_node != usual.gpus_per_node:
            yield (
                f"a node of partition {kind.partition} has {kind.per_node} GPUs, but {like}"
                f" usually has {usual.gpus_per_node}: check that gpu_type {gpu_type} is right; jobs"
                f" will use {kind.per_node} of them"
            )


def mixed_note(kind: scheduler.GpuKind) -> str:
    """Return what jobs use of nodes with different numbers of GPUs."""
    counts = ", ".join(
        f"{nodes} node{'s' * (nodes != 1)} with {count}" for count, nodes in kind.counts.items()
    )
    name, usable = kind.gres_type or "GPUs", kind.nodes - kind.unused
    of_nodes = f" and run on {usable} of {kind.nodes} nodes" if kind.unused else ""
    return (
        f"partition {kind.partition} has nodes with different numbers of {name}: {counts}. Jobs ask"
        f" for {kind.per_node} on each node{of_nodes}; slurm.gpu.gres sets another number"
    )


def _account_notes(account: str | None, cluster: scheduler.SlurmFound) -> Iterator[str]:
    if account is not None and cluster.accounts and account not in cluster.accounts:
        near = nearest(account, cluster.accounts)
        fix = (
            f"did you mean '{near}'?"
            if near is not None
            else f"yours are {', '.join(cluster.accounts)}"
        )
        yield f"slurm.account: '{account}' is not one of your accounts; {fix}"
