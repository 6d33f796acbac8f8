# SPDX-License-Identifier: Apache-2.0
"""Tests of what is left of a list: one run is for one job, of the same configuration and repeat."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from llmb.contract.record import RunRecord
from llmb.contract.switches import Switches
from llmb.run.prepare import Prepared
from llmb.run.resume import key_of, remaining

Items = Callable[..., list[Prepared]]
Submitted = Callable[..., list[RunRecord]]


def repeats(items: tuple[Prepared, ...]) -> list[int]:
    return [item.job.repeat for item in items]


def test_what_has_succeeded_or_is_under_way_is_not_left(items: Items, submitted: Submitted) -> None:
    runs = submitted(5)
    found = remaining(items(7), [runs[0], runs[3]], [runs[1]])
    assert repeats(found.items) == [3, 5, 6, 7]
    assert (found.done, found.live) == ((runs[0], runs[3]), (runs[1],))


def test_a_run_is_for_one_job(items: Items, submitted: Submitted) -> None:
    (first, second) = submitted(1) + submitted(1)
    twice = items(1) * 3
    assert len(remaining(twice, [first], []).items) == 2
    assert len(remaining(twice, [first], [second]).items) == 1
    found = remaining(items(1), [first, second], [])
    assert (found.items, found.done) == ((), (first,))


Planned = TypeVar("Planned", Prepared, RunRecord)


def on_nodes(planned: Planned, names: str) -> Planned:
    assert planned.launch is not None
    return replace(planned, launch=replace(planned.launch, slurm_args={"nodelist": names}))


def test_of_equal_jobs_on_two_racks_the_one_without_a_run_is_left(
    items: Items, submitted: Submitted
) -> None:
    """The first rack's job failed, the second one's succeeded."""
    racks = [on_nodes(items(1)[0], "n[1-8]"), on_nodes(items(1)[0], "n[9-16]")]
    done = on_nodes(submitted(1)[0], "n[9-16]")
    assert remaining(racks, [done], []).items == (racks[0],)
    assert remaining(racks, [], [done]).items == (racks[0],)


def test_a_job_that_now_goes_to_other_nodes_has_its_run_still(
    items: Items, submitted: Submitted
) -> None:
    (item,) = items(1)
    done = on_nodes(submitted(1)[0], "n[9-16]")
    for again in (item, on_nodes(item, "n[1-8]")):
        assert remaining([again], [done], []).done == (done,)


@pytest.mark.parametrize(
    "change",
    [
        {"max_steps": 20},
        {"repeat": 2},
        {"env": {"A": "1"}},
        {"parameters": {"message_size": "16M"}},
        {"framework": "bridge", "release": "26.08"},
        {"dotted": {"optimizer.lr": 1e-4}},
        {"profile": True},
        {"dtype": "fp8"},
        {"gpus_per_node": 1},
    ],
)
def test_another_configuration_is_another_job(change: dict[str, object], items: Items) -> None:
    job = items(1)[0].job
    assert key_of(replace(job, **change)) != key_of(job)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"gbs": 64}, {"tp": 2}, {"mbs": 4}, {"num_layers": 99}])
def test_other_training_is_another_job(change: dict[str, int], items: Items) -> None:
    job = items(1)[0].job
    assert key_of(replace(job, training=replace(job.trained, **change))) != key_of(job)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [{"save_checkpoint": True}, {"tokenizer": "hub"}, {"nccl_trace": True}, {"stragglers": True}],
)
def test_other_switches_are_another_job(given: dict[str, Any], items: Items) -> None:
    job = items(1)[0].job
    assert key_of(replace(job, switches=Switches(**given))) != key_of(job)
    assert key_of(replace(job, switches=Switches())) == key_of(job)


def test_a_longer_limit_is_the_same_job(items: Items) -> None:
    job = items(1)[0].job
    assert key_of(replace(job, time_limit=1)) == key_of(job)
    assert key_of(replace(job, env={"A": "1", "B": "2"})) == key_of(
        replace(job, env={"B": "2", "A": "1"})
    )
