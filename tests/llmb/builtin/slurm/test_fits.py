# SPDX-License-Identifier: Apache-2.0
"""Tests of the faults of a launch and its partition, from every source of sbatch's options."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from llmb.builtin.slurm.partitions import faults_of, read
from llmb.contract.launch import Launch, Program
from llmb.contract.sbatch import SlurmConfig, SlurmOptions
from llmb.contract.schema import ClusterConfig
from llmb.errors import PreflightError, describe
from llmb_installer.cluster_types import all_types

FOUND = read(
    "gpu*|up|infinite|1-infinite|4|idle|gpu:h100:8|n[1-4]|none\ndebug|up|30:00|1-2|1|idle|gpu:h100:8|n1|none\n"
)
PLACE = ClusterConfig(
    cluster_type="slurm",
    gpu_type="h100",
    sections={"slurm": SlurmConfig(gpu=SlurmOptions({"partition": "debug", "gres": 8}))},
    kind=all_types()["slurm"],
)
HOUR = Launch(
    name="x",
    nodes=1,
    ranks_per_node=8,
    time_limit=3600,
    program=Program(module="m"),
    gpu_type="h100",
)


def codes(launch: Launch, place: ClusterConfig = PLACE) -> list[str]:
    return [fault.code for fault in faults_of(launch, place, FOUND)]


@pytest.mark.parametrize("limit", ["20", "30:00", "0-00:10", "UNLIMITED"])
def test_a_shorter_limit_is_believed_in_every_form(limit: str) -> None:
    assert codes(replace(HOUR, slurm_args={"time": limit})) == []


@pytest.mark.parametrize(("limit", "seconds"), [("45", 2700), ("1-2", 93600)])
def test_a_longer_limit_is_too_long_in_every_form(
    limit: str, seconds: int, wording: Callable[..., None]
) -> None:
    (fault,) = faults_of(replace(HOUR, time_limit=60, slurm_args={"time": limit}), PLACE, FOUND)
    assert (fault.code, fault.value) == ("time-limit-too-long", seconds)
    wording("submit-all", describe(PreflightError([fault])))


def test_options_that_a_run_keeps_count_in_its_next_attempt() -> None:
    assert codes(replace(HOUR, slurm_args={"partition": "gpu"})) == []
    assert codes(replace(HOUR, slurm_args={"--partition": "gpu", "gpus_per_node": "9"})) == [
        "too-few-nodes"
    ]


def test_a_job_that_asks_for_no_gpus_on_nodes_that_have_some_is_named(
    wording: Callable[..., None],
) -> None:
    """With --exclusive alone its steps see none; null in the configuration allows that."""
    job = replace(HOUR, time_limit=60)
    without = PLACE.with_slurm(SlurmConfig(gpu=SlurmOptions({"partition": "debug"})))
    (fault,) = faults_of(job, without, FOUND)
    assert fault.code == "no-gpus-asked"
    wording("submit-all", describe(PreflightError([fault])))
    for meant in ({"gres": "null"}, {"gpus-per-node": "8"}):
        assert codes(replace(job, slurm_args=meant), without) == []
    assert codes(replace(job, gpu_type="cpu"), without) == []
    null = PLACE.with_slurm(SlurmConfig(gpu=SlurmOptions({"partition": "debug", "gres": None})))
    assert codes(job, null) == []


def test_the_fix_for_a_cpu_job_with_too_few_nodes_is_ranks_on_a_node(
    wording: Callable[..., None],
) -> None:
    job = replace(HOUR, nodes=6, ranks_per_node=1, gpu_type="cpu")
    place = replace(PLACE.with_slurm(SlurmConfig(partition="gpu")), gpu_type="cpu")
    faults = [*faults_of(job, place, FOUND)]
    assert [fault.code for fault in faults] == ["too-few-nodes"]
    assert "--gpus-per-node 6" in str(faults[0].hint)
    assert codes(replace(job, nodes=1, ranks_per_node=6), place) == []
    wording("submit-all", describe(PreflightError(faults)))
    (fault,) = faults_of(replace(job, slurm_args={"nodelist": "n[1-6]"}), place, FOUND)
    assert str(fault.hint).startswith("name at most ")  # as in `nodes check --nodelist`
    none = replace(job, gpu_type="h100", slurm_args={"nodelist": "n1", "gres": "gpu:99"})
    assert not any("name at most" in str(fault.hint) for fault in faults_of(none, place, FOUND))


def test_a_partition_for_cpus_is_not_meant_for_gpus(wording: Callable[..., None]) -> None:
    for name, meant in (("cpu", False), ("gpus", True)):
        (fault,) = faults_of(HOUR, PLACE.with_slurm(SlurmConfig(partition=name, gres=8)), FOUND)
        assert (fault.code, "'gpu'?" in str(fault.hint)) == ("partition-unknown", meant)
        wording("submit-all", describe(PreflightError([fault])))
