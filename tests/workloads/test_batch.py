# SPDX-License-Identifier: Apache-2.0
"""The ranks share each global batch without gap or overlap."""

import pytest

from llmb_workloads.fields import RefusedError
from llmb_workloads.world import BatchPlan, Process, plan_batch, samples_of_step


def test_accumulation_is_what_the_ranks_leave() -> None:
    assert plan_batch(micro=2, total=64, world=8) == BatchPlan(micro=2, accumulation=4, total=64)


@pytest.mark.parametrize(("micro", "total", "world"), [(2, 12, 4), (4, 8, 4), (3, 8, 1)])
def test_a_batch_that_does_not_come_out_whole_is_refused(
    micro: int, total: int, world: int
) -> None:
    with pytest.raises(RefusedError, match=rf"{micro * world}$") as refusal:
        plan_batch(micro=micro, total=total, world=world)
    assert refusal.value.place == "recipe.global_batch"


@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_step_takes_the_same_samples_on_any_number_of_ranks(world: int) -> None:
    plan = plan_batch(micro=2, total=16, world=world)
    taken = [
        number
        for rank in range(world)
        for micro_batch in samples_of_step(
            plan, Process(rank=rank, world=world, local_rank=rank), step=3
        )
        for number in micro_batch
    ]
    assert taken == list(range(48, 64))


def test_micro_batches_have_their_size() -> None:
    plan = plan_batch(micro=2, total=16, world=2)
    parts = samples_of_step(plan, Process(rank=1, world=2, local_rank=1), step=0)
    assert [len(part) for part in parts] == [2, 2, 2, 2]
