# SPDX-License-Identifier: Apache-2.0
"""Which process of how many this is, from the environment variables of its launcher."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmb_workloads.fields import RefusedError

# torchrun and llmb's local cluster set RANK and the like; srun has other names.
SPELLINGS = (("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"))
MEETING_POINT = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A process of the run: its rank, the number of all processes, its index on its node."""

    rank: int
    world: int
    local_rank: int


def place_from(environ: Mapping[str, str]) -> Place:
    """The place from the environment; raises RefusedError unless the process can connect to the others of its run."""
    place = rank_from(environ)
    missing = [name for name in MEETING_POINT if not environ.get(name)]
    names = _spelling(environ)
    # A single process connects to none.
    if names is not None and place.world > 1 and missing:
        cause = f"{names[0]} is set, {' and '.join(missing)} not"
        fix = "set MASTER_ADDR to the first node's name and MASTER_PORT to a free port there"
        raise RefusedError("environment", cause, fix)
    return place


def rank_from(environ: Mapping[str, str]) -> Place:
    """The place from the environment: torchrun's names, else srun's, else a single process."""
    names = _spelling(environ)
    if names is None:
        return Place(rank=0, world=1, local_rank=0)
    rank, world, local_rank = (_count(environ, name, names[0]) for name in names)
    if rank >= world:
        raise RefusedError(
            "environment", f"{names[0]} {rank} is not below {names[1]} {world}", "start it with torchrun or srun"
        )
    return Place(rank=rank, world=world, local_rank=local_rank)


def _spelling(environ: Mapping[str, str]) -> tuple[str, str, str] | None:
    return next((names for names in SPELLINGS if names[0] in environ), None)


def _count(environ: Mapping[str, str], name: str, known_by: str) -> int:
    value = environ.get(name)
    if value is None:
        raise RefusedError("environment", f"{known_by} is set, {name} not", f"set {name} too")
    if not (value.isascii() and value.isdigit()):
        raise RefusedError("environment", f"{name} is '{value}'", "write a whole number")
    return int(value)
