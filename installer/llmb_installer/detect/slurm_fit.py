# SPDX-License-Identifier: Apache-2.0
"""Holds answers for a Slurm cluster against the one that answers here, before hours of fetching and building."""

from collections.abc import Iterable, Iterator
from typing import Any

from llmb.config.slurm import NO_MPI, SlurmConfig
from llmb.errors import Fault, InputFaults
from llmb.text.names import nearest, suggest
from llmb_installer.answers import Answers
from llmb_installer.answers.layers import value_at
from llmb_installer.detect.scheduler import SlurmFound, find_slurm

_KINDS = ("gpu", "cpu")
_OPTIONS = tuple(f"slurm.{kind}{option}" for option in ("partition", "account") for kind in ("", "gpu.", "cpu."))


def check(answers: Answers) -> list[str]:
    """What the user should know of the cluster here, for which the answers are to be.

    Raises InputFaults for what cannot be, each at its key. A machine without Slurm can install all the same.
    """
    found = find_slurm()
    if found.fault:
        cause = "there is no sinfo here" if "sinfo" not in found.commands else found.fault
        return [f"Slurm does not answer here, so no job can be submitted: {cause} (llmb-install doctor tells more)"]
    if faults := partition_faults(answers, found):
        raise InputFaults(faults)
    return [*doubts(answers, found)]


def of_given(data: Any, found: SlurmFound | None) -> tuple[list[Fault], list[str]]:
    """Faults, and doubts, of what the ``data`` of answers that are not whole, or not sound, say of a Slurm cluster.

    ``found`` None: the one here is asked, if there is anything to ask about.
    """
    types = data.get("gpu_types") if isinstance(data, dict) else None
    keys = [*_OPTIONS, *(f"gpu_types.{name}.partition" for name in (types if isinstance(types, dict) else ()))]
    said = {key: str(value) for key in keys if isinstance(value := value_at(data, key), str | int)}
    if not said:
        return [], []
    found = found if found is not None else find_slurm()
    if found.fault:
        return [], []
    partitions = [(key, name) for key, name in said.items() if key.endswith("partition")]
    account = said.get("slurm.gpu.account") or said.get("slurm.account")
    return _not_there(partitions, found), [*_account_doubts(account, found)]


def partition_faults(answers: Answers, found: SlurmFound) -> list[Fault]:
    """A fault for each partition that the answers name and that this cluster does not have."""
    return _not_there(_partitions(answers), found)


def _not_there(named: Iterable[tuple[str, str]], found: SlurmFound) -> list[Fault]:
    return [
        Fault(place=key, message=f"Slurm has no partition '{name}'", hint=suggest(name, [*found.partitions]))
        for key, names in named
        for name in names.split(",")
        if found.partitions and name not in found.partitions
    ]


def _partitions(answers: Answers) -> Iterator[tuple[str, str]]:
    """Every key of the answers that names partitions, with them."""
    slurm = answers.slurm or SlurmConfig()
    named: dict[str, object] = {"slurm.partition": slurm.partition}
    named |= {f"slurm.{kind}.partition": getattr(slurm, kind).given.get("partition") for kind in _KINDS}
    named |= {f"gpu_types.{name}.partition": own.partition for name, own in answers.gpu_types.items()}
    return ((key, str(names)) for key, names in named.items() if names is not None)


def doubts(answers: Answers, found: SlurmFound) -> Iterator[str]:
    """What llmb-run would refuse here, and what may yet be right: elsewhere, later, or for another user."""
    slurm = answers.slurm or SlurmConfig()
    if slurm.container == "pyxis" and not found.pyxis and "srun" in found.commands:
        yield (
            "slurm.container is pyxis, and srun knows no --container-image here: llmb-run would refuse every job. "
            "'slurm: {container: none}' in the answers runs them from an environment of Python"
        )
    if slurm.mpi is not None and found.mpi and slurm.mpi not in (*found.mpi, NO_MPI):
        yield f"slurm.mpi: srun has no '{slurm.mpi}' here, but {', '.join(found.mpi)}"
    account = slurm.option("account")
    yield from _account_doubts(str(account) if account is not None else None, found)


def _account_doubts(account: str | None, found: SlurmFound) -> Iterator[str]:
    if account is not None and found.accounts and account not in found.accounts:
        near = nearest(account, found.accounts)
        meant = f"did you mean '{near}'?" if near is not None else f"yours: {', '.join(found.accounts)}"
        yield f"slurm.account: '{account}' is not one of your accounts; {meant}"
