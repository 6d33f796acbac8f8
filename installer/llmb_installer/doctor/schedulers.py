# SPDX-License-Identifier: Apache-2.0
"""Findings about a Slurm cluster, and those of other cluster types."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Literal

from llmb.contract.cluster_type import ClusterType
from llmb.contract.finding import Finding, finding, wrong
from llmb.contract.sbatch import NO_MPI, PMIX, SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.errors import LlmbError
from llmb.plan.read_config import raised_by
from llmb_installer import fits
from llmb_installer.detect import scheduler
from llmb_installer.doctor.cluster_types import SLURM

_NEEDED = ("sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel")
KINDS: tuple[Literal["gpu", "cpu"], ...] = ("gpu", "cpu")
_LOGIN = "run on a login node of the cluster, or load Slurm's module"


def findings_of_type(
    kind: ClusterType, config: ClusterConfig | None, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield what a cluster type examines itself, else the notes of its check.

    Without an installation the check has no section, so nothing is known.
    """
    check, needed_by = f"cluster type {kind.name}", (kind.name,)
    section = config.section if config is not None else None
    try:
        if kind.examine is not None:
            yield from _examined(kind, section, environ)
            return
        if not kind.source or config is None:
            return
        notes = fits.run_check_of_type(kind, section, environ)
    except LlmbError as error:
        yield wrong(check, error, needed_by)
        return
    for note in notes:
        yield Finding(check=check, state="wrong", found=note, needed_by=needed_by)
    if not notes:
        yield Finding(check=check, state="ok", found="nothing is missing", needed_by=needed_by)


def _examined(kind: ClusterType, section: object, environ: Mapping[str, str]) -> list[Finding]:
    """Return what a type's own ``examine`` finds. Raises LlmbError, which names its plugin."""
    assert kind.examine is not None
    try:
        found = [*kind.examine(section, environ)]
        return [replace(one, needed_by=(kind.name,)) for one in found]
    except (Exception, SystemExit) as error:
        raise raised_by(kind, "examine", error) from error


def examine_slurm(
    cluster: scheduler.SlurmFound | None,
    config: SlurmConfig | None,
    mpi_fault: Callable[[str], str | None] = lambda kind: None,
) -> Iterator[Finding]:
    """Examine what Slurm reported, and whether it has what the configuration ``config`` needs.

    ``mpi_fault`` returns why srun cannot start ranks with a kind of ``--mpi``, as a submission
    asks.
    """
    commands = cluster.commands if cluster is not None else ()
    lacking = [name for name in _NEEDED if name not in commands]
    fault = f"missing: {', '.join(lacking)}" if lacking else None
    yield finding("Slurm's commands", fault, ", ".join(commands), (SLURM,), _LOGIN)
    if cluster is None or lacking:
        return
    if cluster.fault:
        fix = cluster.fix or _LOGIN
        yield Finding(
            check="Slurm answers", state="missing", found=cluster.fault, needed_by=(SLURM,), fix=fix
        )
        return
    text = f"{cluster.cluster}, version {cluster.version}"
    yield Finding(check="Slurm answers", state="ok", found=text, needed_by=(SLURM,))
    yield from _partitions(cluster, config)
    yield _gpus(cluster, config)
    yield from _accounting(cluster, config)
    yield from _containers(cluster, config, mpi_fault)


def _partitions(cluster: scheduler.SlurmFound, config: SlurmConfig | None) -> Iterator[Finding]:
    up = [name for name, partition in cluster.partitions.items() if partition.available == "up"]
    if cluster.is_hidden:
        text = "Slurm does not show partitions and nodes to you (PrivateData)"
        fix = "name partition and GPUs in the answers: nothing can be detected or checked"
        yield Finding(check="partitions", state="warning", found=text, fix=fix)
        return
    fault = None if up else "none is up"
    yield finding(
        "partitions", fault, ", ".join(up), (SLURM,), "list them with sinfo; ask the administrators"
    )
    named = {kind: config.option("partition", kind) for kind in KINDS} if config is not None else {}
    for kind, names in named.items():
        unknown_names = [
            name
            for name in str(names).split(",")
            if names is not None and name not in cluster.partitions
        ]
        if unknown_names:
            names_here = ", ".join(cluster.partitions)
            fix = f"set slurm.{kind}.partition in cluster_config.yaml: {names_here}"
            text = f"Slurm has no partition {', '.join(unknown_names)}"
            yield Finding(
                check=f"{kind} partition", state="missing", found=text, needed_by=(SLURM,), fix=fix
            )


def _gpus(cluster: scheduler.SlurmFound, config: SlurmConfig | None) -> Finding:
    check = "GPUs (GRES)"
    if cluster.is_hidden:
        text = "Slurm does not show them to you (PrivateData)"
        return Finding(check=check, state="warning", found=text)
    kinds = {
        (kind.gres_type or "gpu", count) for kind in cluster.gpu_kinds() for count in kind.counts
    }
    shown = ", ".join(f"{per_node} {name} per node" for name, per_node in sorted(kinds))
    if kinds and config is not None and config.leaves_gpus_open:
        text = f"{shown}, but the configuration requests none: jobs would see no GPU"
        fix = (
            "set slurm.gpu.gres, such as 8, or null for none; llmb-install --yes in the install"
            " directory sets it too"
        )
        return Finding(check=check, state="warning", found=text, fix=fix)
    if kinds:
        return Finding(check=check, state="ok", found=shown)
    is_wanted = config is not None and config.option("gres") is not None
    return Finding(
        check=check,
        state="missing" if is_wanted else "warning",
        needed_by=(SLURM,) if is_wanted else (),
        fix=(
            "set slurm.gpu.gres to null in cluster_config.yaml"
            if is_wanted
            else "gpu_type: cpu, if nodes have no GPUs"
        ),
        found="Slurm has no GPUs as GRES: jobs use whole nodes",
    )


def _accounting(cluster: scheduler.SlurmFound, config: SlurmConfig | None) -> Iterator[Finding]:
    if not cluster.accounting:
        text = "none: job states come from squeue and the runs' own files, and are lost sooner"
        yield Finding(check="accounting", state="warning", found=text)
        return
    fault, accounts = (
        None if cluster.accounts else "you have no account",
        ", ".join(cluster.accounts),
    )
    fix = "ask for an account: jobs may be refused without one"
    yield finding("accounting", fault, f"your accounts: {accounts}", (), fix)
    account = config.option("account") if config is not None else None
    if account is not None and cluster.accounts and account not in cluster.accounts:
        yield Finding(
            check="account",
            state="missing",
            found=f"'{account}' is not one of yours",
            needed_by=(SLURM,),
            fix=f"set slurm.account in cluster_config.yaml: {accounts}",
        )


def _containers(
    cluster: scheduler.SlurmFound,
    config: SlurmConfig | None,
    mpi_fault: Callable[[str], str | None],
) -> Iterator[Finding]:
    is_wanted = config is not None and config.container == "pyxis"
    fault = None if cluster.pyxis else "srun has no option --container-image"
    fix = (
        "'container: none' runs jobs from a Python environment; or ask the administrators for pyxis"
    )
    yield finding(
        "pyxis", fault, "srun has the option --container-image", (SLURM,) if is_wanted else (), fix
    )
    yield from _mpi(cluster, config, is_wanted=is_wanted, mpi_fault=mpi_fault)


def _mpi(
    cluster: scheduler.SlurmFound,
    config: SlurmConfig | None,
    *,
    is_wanted: bool,
    mpi_fault: Callable[[str], str | None],
) -> Iterator[Finding]:
    """Examine what a submission does with srun's ``--mpi``.

    A configured kind is needed. Without one, ranks in containers start with PMIx if srun has it.
    """
    check, kind = "srun --mpi", config.mpi if config is not None else None
    listed = ", ".join(cluster.mpi) or "none"
    if kind is None:
        if is_wanted and PMIX not in cluster.mpi:
            text = f"srun has no MPI type '{PMIX}'; it has {listed}: ranks start without --mpi"
            fix = "ask the administrators for pmix: the published runs had it"
            yield Finding(check=check, state="warning", found=text, fix=fix)
            return
        kind = PMIX if is_wanted else None
    if kind is None:
        return
    if kind not in (*cluster.mpi, NO_MPI):
        fault: str | None = f"srun has no MPI type '{kind}'; it has {listed}"
    else:
        cause = mpi_fault(kind)
        fault = f"this Slurm {cause}" if cause is not None else None
    fix = "set slurm.mpi in cluster_config.yaml to one of them, or to none"
    yield finding(check, fault, f"srun has {kind}", (SLURM,), fix)
