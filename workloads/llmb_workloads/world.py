# SPDX-License-Identifier: Apache-2.0
"""This process among the ranks, its share of a batch, and synthetic tokens to learn."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from llmb_workloads.fields import RefusedError

# torchrun and llmb's local cluster set RANK and the like; srun has other names.
SPELLINGS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
MEETING_POINT = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the run: its rank, the number of all processes, its index on its node."""

    rank: int
    world: int
    local_rank: int


def process_from(environ: Mapping[str, str]) -> Process:
    """Return this process. Raises RefusedError unless it can connect to the others of its run."""
    process = rank_from(environ)
    missing = [name for name in MEETING_POINT if not environ.get(name)]
    names = _spelling(environ)
    # A single process connects to none.
    if names is not None and process.world > 1 and missing:
        cause = f"{names[0]} is set, {' and '.join(missing)} not"
        fix = "set MASTER_ADDR to the first node's name and MASTER_PORT to a free port there"
        raise RefusedError("environment", cause, fix)
    return process


def rank_from(environ: Mapping[str, str]) -> Process:
    """Return this process by the variables of torchrun, else of srun, else a single process."""
    names = _spelling(environ)
    if names is None:
        return Process(rank=0, world=1, local_rank=0)
    rank, world, local_rank = (_count(environ, name, names[0]) for name in names)
    if rank >= world:
        raise RefusedError(
            "environment",
            f"{names[0]} {rank} is not below {names[1]} {world}",
            "start it with torchrun or srun",
        )
    return Process(rank=rank, world=world, local_rank=local_rank)


def _spelling(environ: Mapping[str, str]) -> tuple[str, str, str] | None:
    return next((names for names in SPELLINGS if names[0] in environ), None)


def _count(environ: Mapping[str, str], name: str, known_by: str) -> int:
    value = environ.get(name)
    if value is None:
        raise RefusedError("environment", f"{known_by} is set, {name} not", f"set {name} too")
    if not (value.isascii() and value.isdigit()):
        raise RefusedError("environment", f"{name} is '{value}'", "write a whole number")
    return int(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """A step's batch."""

    #: Samples of a micro batch.
    micro: int
    #: Micro batches of a rank.
    accumulation: int
    #: Samples of all ranks.
    total: int


def plan_batch(*, micro: int, total: int, world: int) -> BatchPlan:
    """Return GA = global batch / (micro batch * ranks). Raises RefusedError for a remainder."""
    accumulation, remainder = divmod(total, micro * world)
    if remainder:
        cause = f"{total} is not a multiple of micro_batch {micro} times {world} ranks"
        fix = f"choose a multiple of {micro * world}"
        raise RefusedError("recipe.global_batch", cause, fix)
    return BatchPlan(micro=micro, accumulation=accumulation, total=total)


def samples_of_step(plan: BatchPlan, process: Process, step: int) -> list[range]:
    """Return the sample numbers of each micro batch of this rank.

    A step takes the same samples however many ranks share it, so the loss of the first step does
    not depend on their number.
    """
    share = plan.micro * plan.accumulation
    first = step * plan.total + process.rank * share
    return [range(start, start + plan.micro) for start in range(first, first + share, plan.micro)]


# So few that every pair appears often within 50 short steps, whatever the vocabulary.
ACTIVE_TOKENS = 512
# The probability that the next token is any token instead of the successor: it keeps the loss above
# zero.
NOISE = 0.1


def successor_map(vocab: int, seed: int) -> dict[int, int]:
    """Return each token's successor: a ring through at most ACTIVE_TOKENS tokens."""
    ring = random.Random(f"successors {seed}").sample(range(vocab), min(vocab, ACTIVE_TOKENS))
    return dict(zip(ring, ring[1:] + ring[:1], strict=True))


def sample_tokens(
    successors: Mapping[int, int], *, length: int, seed: int, number: int
) -> list[int]:
    """Return sample `number` of this seed's endless data set: `length` tokens."""
    rng = random.Random(f"sample {seed} {number}")
    active = list(successors)
    tokens = [rng.choice(active)]
    while len(tokens) < length:
        tokens.append(rng.choice(active) if rng.random() < NOISE else successors[tokens[-1]])
    return tokens
