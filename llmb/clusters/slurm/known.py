# SPDX-License-Identifier: Apache-2.0
"""What this Slurm's own commands know of the options that scripts use; releases and plugins differ."""

from collections.abc import Sequence

from llmb.clusters.slurm.commands import Client
from llmb.clusters.slurm.container import PYXIS_OPTIONS
from llmb.clusters.slurm.sbatch_script import PYXIS
from llmb.config import ClusterConfig
from llmb.config.slurm import NO_MPI, PMIX, SlurmConfig
from llmb.errors import LlmbError

_HELP_SECONDS = 60.0  # no controller is asked: only a busy machine is slow, and a script without the answer may fail


def segment(client: Client, config: ClusterConfig) -> bool:
    """Whether sbatch has ``--segment``; looked up only where a job could want it. True where there is no sbatch."""
    slurm = config.slurm
    given = slurm is not None and (slurm.segment or "segment" in {*slurm.gpu.given, *slurm.cpu.given})
    if not given and not any(config.gpu(name).gpus_per_node == 4 for name in (config.gpu_type, *config.gpu_types)):
        return True
    shown = help_of(client, "sbatch")
    return shown is None or "--segment" in shown


def lacking(client: Client, config: ClusterConfig) -> frozenset[str]:
    """Those of PYXIS_OPTIONS, and PMIX, that this srun does not have. None of them where it cannot be asked."""
    slurm = config.slurm or SlurmConfig()
    shown = help_of(client, "srun") if slurm.container == PYXIS else None
    if shown is None or "--container-image" not in shown:  # without any pyxis, nothing is known of its options
        return frozenset()
    found = {name for name in PYXIS_OPTIONS if name.removeprefix("no-") not in shown}
    kinds = mpi_kinds(client) if slurm.mpi is None else None
    return frozenset(found if kinds is None or PMIX in kinds else {*found, PMIX})


def no_mpi(client: Client, kind: str) -> str | None:
    """Why srun cannot take ``kind`` for ``--mpi``; None where it can, or cannot be asked."""
    kinds = mpi_kinds(client)
    if kinds is not None and kind not in (*kinds, NO_MPI):
        return f"has no MPI plugin '{kind}'"
    try:  # one that it lists may lack its library
        done = client.run(["srun", f"--mpi={kind}", "--ntasks=1", "--test-only", "true"], timeout=client.ask_seconds)
    except LlmbError:
        return None
    refused = done.code != 0 and "Invalid MPI type" in done.err
    return f"cannot load its MPI plugin '{kind}'" if refused else None


def mpi_kinds(client: Client) -> list[str] | None:
    """What srun takes for ``--mpi``; None where it cannot be asked."""
    shown = _plain(client, ["srun", "--mpi=list"])
    return None if shown is None else shown.replace(",", " ").split()


def help_of(client: Client, program: str) -> str | None:
    """The help of one of Slurm's commands; None where it cannot be had."""
    return _plain(client, [program, "--help"])


def _plain(client: Client, argv: Sequence[str]) -> str | None:
    """What a command prints that asks no controller."""
    try:
        done = client.run(argv, timeout=_HELP_SECONDS)
    except LlmbError:
        return None
    return done.out + done.err if done.code == 0 else None
