# SPDX-License-Identifier: Apache-2.0
"""A process knows its rank from torchrun's names, else from srun's, else it is alone."""

from collections.abc import Callable

import pytest

from llmb_workloads.fields import RefusedError
from llmb_workloads.world import Process, process_from

MEETING = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "16", "LOCAL_RANK": "1", **MEETING}
SRUN = {"SLURM_PROCID": "5", "SLURM_NTASKS": "16", "SLURM_LOCALID": "2", **MEETING}


def test_torchruns_names_are_read() -> None:
    assert process_from(TORCHRUN) == Process(rank=3, world=16, local_rank=1)


def test_sruns_names_are_read() -> None:
    assert process_from(SRUN) == Process(rank=5, world=16, local_rank=2)


def test_torchruns_names_come_first() -> None:
    assert process_from(SRUN | TORCHRUN).rank == 3


def test_a_process_without_a_launcher_is_alone() -> None:
    assert process_from({"PATH": "/bin"}) == Process(rank=0, world=1, local_rank=0)


def test_one_process_of_one_needs_no_meeting_point() -> None:
    assert process_from({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}).world == 1


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        (SRUN | {"MASTER_ADDR": ""}, "environment"),
        ({"RANK": "0"}, "environment"),
        (TORCHRUN | {"RANK": "-1"}, "environment"),
        (TORCHRUN | {"RANK": "16"}, "environment"),
    ],
)
def test_an_incomplete_environment_is_refused(
    environ: dict[str, str], place: str, wording: Callable[..., None]
) -> None:
    with pytest.raises(RefusedError) as refusal:
        process_from(environ)
    assert refusal.value.place == place
    wording("torch_pretrain", str(refusal.value))
