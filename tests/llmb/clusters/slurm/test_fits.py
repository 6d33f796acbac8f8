# SPDX-License-Identifier: Apache-2.0
"""Tests of what is held against a partition: what sbatch will be asked for, wherever that was said."""

from dataclasses import replace

import pytest

from llmb.clusters.slurm.fits import faults_of
from llmb.clusters.slurm.partitions import read
from llmb.config import ClusterConfig
from llmb.config.slurm import SlurmConfig, SlurmOptions
from llmb.runs.launch import Launch, Program

FOUND = read(
    "gpu*|up|infinite|1-infinite|4|idle|gpu:h100:8|n[1-4]|none\ndebug|up|30:00|1-2|1|idle|gpu:h100:8|n1|none\n"
)
PLACE = ClusterConfig(
    cluster_type="slurm", gpu_type="h100", slurm=SlurmConfig(gpu=SlurmOptions({"partition": "debug", "gres": 8}))
)
HOUR = Launch(name="x", nodes=1, ranks_per_node=8, time_limit=3600, program=Program(module="m"), gpu_type="h100")


def faults(launch: Launch, place: ClusterConfig = PLACE) -> list[str]:
    return [fault.message for fault in faults_of(launch, place, FOUND)]


@pytest.mark.parametrize("limit", ["20", "30:00", "0-00:10", "UNLIMITED"])
def test_a_shorter_limit_is_believed_in_every_form(limit: str) -> None:
    assert faults(replace(HOUR, slurm_args={"time": limit})) == []


@pytest.mark.parametrize(("limit", "said"), [("45", "00:45:00"), ("1-2", "26:00:00")])
def test_a_longer_limit_is_too_long_in_every_form(limit: str, said: str) -> None:
    message = f"x asks for {said}, and partition debug allows 00:30:00"
    assert faults(replace(HOUR, time_limit=60, slurm_args={"time": limit})) == [message]


def test_options_that_a_run_keeps_count_in_its_next_attempt() -> None:
    assert faults(replace(HOUR, slurm_args={"partition": "gpu"})) == []
    assert faults(replace(HOUR, slurm_args={"--partition": "gpu", "gpus_per_node": "9"})) == [
        "x needs 1 node with 9 GPUs, and partition gpu has none"
    ]


def test_a_job_that_asks_for_no_gpus_on_nodes_that_have_some_is_named() -> None:
    """With --exclusive alone its steps see none; null says that this is meant."""
    job = replace(HOUR, time_limit=60)
    without = replace(PLACE, slurm=SlurmConfig(gpu=SlurmOptions({"partition": "debug"})))
    message = "x asks for no GPUs and would see none: nodes of partition debug have 8"
    (fault,) = faults_of(job, without, FOUND)
    assert (fault.message, "'gres: 8'" in str(fault.hint)) == (message, True)
    for meant in ({"gres": "null"}, {"gpus-per-node": "8"}):
        assert faults(replace(job, slurm_args=meant), without) == []
    assert faults(replace(job, gpu_type="cpu"), without) == []
    null = replace(PLACE, slurm=SlurmConfig(gpu=SlurmOptions({"partition": "debug", "gres": None})))
    assert faults(job, null) == []
