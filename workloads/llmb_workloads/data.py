# SPDX-License-Identifier: Apache-2.0
"""Synthetic tokens that a model can learn, and the plan of a global batch over ranks and micro batches."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from llmb_workloads.fields import RefusedError
from llmb_workloads.world import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Samples of a micro batch, micro batches of a step on each rank, and samples of a step on all ranks."""

    micro: int
    accumulation: int
    total: int


def plan_batch(*, micro: int, total: int, world: int) -> BatchPlan:
    """GA = global batch / (micro batch * ranks); raises RefusedError unless it is a whole number."""
    accumulation, rest = divmod(total, micro * world)
    if rest:
        cause = f"{total} is not a multiple of micro_batch {micro} times {world} ranks"
        fix = f"choose a multiple of {micro * world}"
        raise RefusedError("recipe.global_batch", cause, fix)
    return BatchPlan(micro=micro, accumulation=accumulation, total=total)


def samples_of_step(plan: BatchPlan, place: Place, step: int) -> list[range]:
    """The sample numbers of each micro batch of this rank.

    A step takes the same samples however many ranks share it, so the loss of the first step does not
    depend on their number.
    """
    share = plan.micro * plan.accumulation
    first = step * plan.total + place.rank * share
    return [range(start, start + plan.micro) for start in range(first, first + share, plan.micro)]


# So few that every pair appears often within 50 short steps, whatever the vocabulary.
ACTIVE_TOKENS = 512
# The probability that the next token is any token instead of the successor: it keeps the loss above zero.
NOISE = 0.1


def successor_map(vocab: int, seed: int) -> dict[int, int]:
    """Each token's successor: a ring through at most ACTIVE_TOKENS tokens of the vocabulary."""
    ring = random.Random(f"successors {seed}").sample(range(vocab), min(vocab, ACTIVE_TOKENS))
    return dict(zip(ring, ring[1:] + ring[:1], strict=True))


def sample_tokens(successors: Mapping[int, int], *, length: int, seed: int, number: int) -> list[int]:
    """Sample `number` of the endless data set of this seed: `length` tokens."""
    rng = random.Random(f"sample {seed} {number}")
    active = list(successors)
    tokens = [rng.choice(active)]
    while len(tokens) < length:
        tokens.append(rng.choice(active) if rng.random() < NOISE else successors[tokens[-1]])
    return tokens
