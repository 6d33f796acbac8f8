# SPDX-License-Identifier: Apache-2.0
"""Compares answers for a Slurm cluster with the cluster here, before hours of fetching and building."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from llmb.config.slurm import NO_MPI, SlurmConfig, SlurmOptions
from llmb.errors import Fault, InputFaults
from llmb.text.names import nearest, suggest
from llmb.workload.gpus import CPU
from llmb_installer.answers import Answers
from llmb_installer.answers.layers import value_at
from llmb_installer.detect import scheduler
from llmb_installer.detect.scheduler import SlurmFound

_KINDS = ("gpu", "cpu")
_OPTIONS = tuple(f"slurm.{kind}{option}" for option in ("partition", "account") for kind in ("", "gpu.", "cpu."))


def check(answers: Answers) -> list[str]:
    """Notes for the user about the cluster here. A machine without Slurm can install too.

    Raises InputFaults for what cannot work, each fault at its key.
    """
    found = scheduler.find_slurm()
    if found.fault:
        cause = found.fault if "sinfo" in found.commands else "there is no sinfo here"
        return [f"Slurm does not answer, so jobs cannot be submitted from here: {cause} (see: llmb-install doctor)"]
    if faults := partition_faults(answers, found):
        raise InputFaults(faults)
    return [*notes_on(answers, found)]


def check_given(data: Any, found: SlurmFound | None) -> tuple[list[Fault], list[str]]:
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


def partition_faults(answers: Answers, found: SlurmFound) -> list[Fault]:
    """A fault for each partition in the answers that this cluster does not have."""
    return _unknown_partitions(_partitions(answers), found)


def _unknown_partitions(named: Iterable[tuple[str, str]], found: SlurmFound) -> list[Fault]:
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


def notes_on(answers: Answers, found: SlurmFound) -> Iterator[str]:
    """What llmb-run would refuse here, and what may work elsewhere, later, or for another user."""
    slurm = answers.slurm or SlurmConfig()
    if slurm.container == "pyxis" and not found.pyxis and "srun" in found.commands:
        yield (
            "slurm.container is pyxis, but srun has no option --container-image here: llmb-run would refuse every "
            "job. Set 'slurm: {container: none}' to run jobs from a Python environment"
        )
    if slurm.mpi is not None and found.mpi and slurm.mpi not in (*found.mpi, NO_MPI):
        yield f"slurm.mpi: srun has no MPI type '{slurm.mpi}' here; it has {', '.join(found.mpi)}"
    account = slurm.option("account")
    yield from _account_notes(str(account) if account is not None else None, found)


def _account_notes(account: str | None, found: SlurmFound) -> Iterator[str]:
    if account is not None and found.accounts and account not in found.accounts:
        near = nearest(account, found.accounts)
        fix = f"did you mean '{near}'?" if near is not None else f"yours are {', '.join(found.accounts)}"
        yield f"slurm.account: '{account}' is not one of your accounts; {fix}"


def needs_gres(answers: Answers) -> bool:
    """Whether GPU jobs would request no GPUs, because no answer gives their number."""
    if answers.cluster_type != "slurm" or answers.gpu_type == CPU:
        return False
    own = answers.gpu_types.get(answers.gpu_type)
    return (own is None or own.gres is None) and (answers.slurm or SlurmConfig()).leaves_gpus_open


def with_gres(answers: Answers, found: SlurmFound) -> tuple[Answers, list[str]]:
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
