# SPDX-License-Identifier: Apache-2.0
"""What a Slurm cluster has: commands, partitions, GPUs, accounting, pyxis, MPI."""

from collections.abc import Iterator
from typing import Literal

from llmb.config.slurm import NO_MPI, SlurmConfig
from llmb_installer.detect.scheduler import SlurmFound
from llmb_installer.doctor.finding import SLURM, Finding, finding

_NEEDED = ("sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel")
KINDS: tuple[Literal["gpu", "cpu"], ...] = ("gpu", "cpu")
_OTHER_MPI = "set slurm.mpi in cluster_config.yaml to one of those, or to none"
_LOGIN = "run on a login node of the cluster, or load Slurm's module"


def findings(found: SlurmFound | None, own: SlurmConfig | None) -> Iterator[Finding]:
    """Look at what Slurm said, and at what the configuration, ``own``, wants of it."""
    commands = found.commands if found is not None else ()
    lacking = [name for name in _NEEDED if name not in commands]
    fault = f"not here: {', '.join(lacking)}" if lacking else None
    yield finding("Slurm's commands", fault, ", ".join(commands), (SLURM,), _LOGIN)
    if found is None or lacking:
        return
    if found.fault:
        fix = found.fix or _LOGIN
        yield Finding(check="Slurm answers", state="missing", found=found.fault, needed_by=(SLURM,), fix=fix)
        return
    yield Finding(
        check="Slurm answers", state="ok", found=f"{found.cluster}, version {found.version}", needed_by=(SLURM,)
    )
    yield from _partitions(found, own)
    yield _gpus(found, own)
    yield from _accounting(found, own)
    yield from _containers(found, own)


def _partitions(found: SlurmFound, own: SlurmConfig | None) -> Iterator[Finding]:
    up = [name for name, partition in found.partitions.items() if partition.available == "up"]
    fault = None if up else "none is up"
    yield finding("partitions", fault, ", ".join(up), (SLURM,), "sinfo lists them; ask who runs the cluster")
    named = {kind: own.option("partition", kind) for kind in KINDS} if own is not None else {}
    for kind, names in named.items():
        gone = [name for name in str(names).split(",") if names is not None and name not in found.partitions]
        if gone:
            fix = f"set slurm.{kind}.partition in cluster_config.yaml: {', '.join(found.partitions)}"
            said = f"no partition is called {', '.join(gone)}"
            yield Finding(check=f"{kind} partition", state="missing", found=said, needed_by=(SLURM,), fix=fix)


def _gpus(found: SlurmFound, own: SlurmConfig | None) -> Finding:
    kinds = {(kind.gres_type or "gpu", kind.per_node) for kind in found.gpu_kinds()}
    told = ", ".join(f"{per_node} {name} a node" for name, per_node in sorted(kinds))
    wanted = own is not None and own.option("gres") is not None
    fix = "set slurm.gpu.gres to null in cluster_config.yaml" if wanted else None
    if kinds and own is not None and own.leaves_gpus_open:
        said = f"{told}, and the configuration asks for none: jobs would see no GPU"
        hint = "llmb-install --yes fills in slurm.gpu.gres; by hand, as in slurm: {gpu: {gres: 8}}; null asks for none"
        return Finding(check="GPUs (GRES)", state="warning", found=said, fix=hint)
    if kinds:
        return Finding(check="GPUs (GRES)", state="ok", found=told)
    return Finding(
        check="GPUs (GRES)",
        state="missing" if wanted else "warning",
        needed_by=(SLURM,) if wanted else (),
        fix=fix,
        found="Slurm counts no GPUs: jobs take whole nodes",
    )


def _accounting(found: SlurmFound, own: SlurmConfig | None) -> Iterator[Finding]:
    if not found.accounting:
        said = "none: states come from squeue and the runs' own files, and are forgotten sooner"
        yield Finding(check="accounting", state="warning", found=said)
        return
    fix = "ask for an account: jobs may be refused without one"
    yield finding("accounting", None if found.accounts else "you have no account", _accounts(found), (), fix)
    account = own.option("account") if own is not None else None
    if account is not None and found.accounts and account not in found.accounts:
        hint = f"set slurm.account in cluster_config.yaml: {', '.join(found.accounts)}"
        said = f"'{account}' is not one of yours"
        yield Finding(check="account", state="missing", found=said, needed_by=(SLURM,), fix=hint)


def _accounts(found: SlurmFound) -> str:
    return f"your accounts: {', '.join(found.accounts)}"


def _containers(found: SlurmFound, own: SlurmConfig | None) -> Iterator[Finding]:
    wanted = own is not None and own.container == "pyxis"
    fault = None if found.pyxis else "srun knows no --container-image"
    fix = "'container: none' runs from an environment of Python; or ask for pyxis"
    yield finding("pyxis", fault, "srun knows --container-image", (SLURM,) if wanted else (), fix)
    mpi = own.mpi if own is not None else None
    kind = mpi or ("pmix" if wanted else None)
    if kind is not None:
        there = f"{kind} is there"
        lacks = None if kind in (*found.mpi, NO_MPI) else f"srun has no '{kind}', but {', '.join(found.mpi) or 'none'}"
        yield finding("srun --mpi", lacks, there, (SLURM,), _OTHER_MPI)
