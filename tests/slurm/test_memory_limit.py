# SPDX-License-Identifier: Apache-2.0
"""Tests of partitions that give a job less memory than a node has, on a real Slurm."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmb_testing.slurm.files import Shape
from llmb_testing.slurm.kit import SlurmKit

pytestmark = pytest.mark.fault("slurm-trouble")

Site = Any  # the class is in conftest.py
LIST = "pretrain_nemotron4_tiny:\n('bf16', [1], 1)\n"


@pytest.fixture(scope="module")
def limited_kit() -> Iterator[SlurmKit]:
    """A cluster that takes jobs beyond its limits, which then wait for ever."""
    partitions = (
        "PartitionName=gpu Nodes=ALL Default=YES State=UP MaxMemPerNode=255000",
        "PartitionName=whole Nodes=ALL State=UP MaxMemPerNode=256000",
    )
    shape = Shape(nodes=1, accounting=False, enforces_limits=False, partitions=partitions)
    with SlurmKit(shape) as kit:
        yield kit


def test_all_memory_of_a_node_is_more_than_the_partition_gives(
    limited_kit: SlurmKit, site_at: Callable[..., Site], wording: Callable[..., None]
) -> None:
    site = site_at(limited_kit)
    path: Path = site.install / "jobs.txt"
    path.write_text(LIST)
    refused = site.llmb("submit-all", path)
    assert refused.returncode != 0
    wording("submit-all", refused.stderr)
    # Without the check, Slurm takes the job and never starts it.
    assert site.llmb("submit-all", path, "--no-preflight").returncode == 0
    (row,) = json.loads(site.llmb("jobs", "list", "--format", "json").stdout)
    assert row["state"] == "PENDING"
    # The second is what the scheduler finds at first.
    assert row["reason"] in ("MaxMemPerLimit", "PartitionConfig")
    assert site.llmb("jobs", "cancel", "--all").returncode == 0
    for option in ("--partition=whole", "--slurm-arg=mem=255000M"):
        done = site.llmb("submit-all", path, option)
        assert done.returncode == 0, done.stderr
