# SPDX-License-Identifier: Apache-2.0
"""How a global batch falls to ranks and micro batches."""

from dataclasses import dataclass

from llmb_workloads.errors import RefusedError
from llmb_workloads.world import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Samples of a micro batch, micro batches of a step on each rank, samples of a step in all."""

    micro: int
    accumulation: int
    total: int


def plan_batch(*, micro: int, total: int, world: int) -> BatchPlan:
    """GA = global batch / (micro batch * ranks); raises RefusedError unless it comes out whole."""
    accumulation, rest = divmod(total, micro * world)
    if rest:
        cause = f"{total} is no multiple of micro_batch {micro} times {world} ranks"
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
