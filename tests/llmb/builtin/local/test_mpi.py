# SPDX-License-Identifier: Apache-2.0
"""Tests of ranks that a real mpirun starts."""

from pathlib import Path
from typing import Any

import pytest

from llmb.contract.launch import Program

Machine = Any  # the class is in conftest.py
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # MPICH may be installed first

SUM = """\
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
open(f"rank{world.rank}", "w").write(f"{os.environ['RANK']} {os.environ['LLMB_LOCAL_RANK']} of {world.size}: {total}")
"""


def test_ranks_meet_by_mpi(machine: Machine, mpi_venv: Path) -> None:
    done = machine.submit(
        SUM, ranks=3, start="mpi", venv=str(mpi_venv), after=Program(shell="echo after")
    )
    machine.ends(done)
    assert [(done.work / f"rank{rank}").read_text() for rank in range(3)] == [
        f"{rank} {rank} of 3: 3" for rank in range(3)
    ]
    assert "after" in done.log.read_text()


def test_a_rank_that_fails_fails_the_run(machine: Machine, mpi_venv: Path) -> None:
    text = (
        "from mpi4py import MPI\nimport os, time\nos._exit(7) if MPI.COMM_WORLD.rank == 1 else"
        " time.sleep(600)"
    )
    failed = machine.submit(text, ranks=2, start="mpi", venv=str(mpi_venv))
    machine.ends(failed, "FAILED")
