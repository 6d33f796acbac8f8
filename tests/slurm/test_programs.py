# SPDX-License-Identifier: Apache-2.0
"""Tests of programs of any kind on a real Slurm: commands, bash, srun by the program itself,
servers, MPI.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmb.contract.launch import Program, Server, StagedFile

Site = Any  # the class is in conftest.py
Run = Callable[..., Any]

PYTHON = sys.executable
SERVER = """\
import http.server, os
rank = os.environ["LLMB_RANK"]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"rank {rank}".encode())
http.server.HTTPServer(("", int(os.environ["LLMB_SERVER_PORT"])), Handler).serve_forever()
"""
CLIENT = """\
import glob, urllib.request
for path in sorted(glob.glob("server-*.address")):
    print(urllib.request.urlopen(f"http://{open(path).read().strip()}").read().decode(), flush=True)
"""


@pytest.fixture
def run(site: Site) -> Run:
    """Submits a run of a program without any Python environment of llmb's."""

    def submit(program: Program, **changes: Any) -> Any:
        return site.submit("", program=program, venv=None, **changes)

    return submit


def lines(run: Any) -> list[str]:
    text: str = run.log.read_text()
    return text.splitlines()


def test_a_command_with_staged_files_and_what_runs_after_it(site: Site, run: Run) -> None:
    staged = (StagedFile(name="bin/own", text='#!/bin/sh\necho "$0 $*" > own\n', executable=True),)
    done = run(
        Program(argv=("bin/own", "it's")),
        args=("$HOME", "a\tb"),
        files=staged,
        after=Program(argv=("cat", "own")),
    )
    site.ends(done)
    assert lines(done) == ["bin/own it's $HOME a\tb"]


def test_lines_of_bash_on_every_rank(site: Site, run: Run) -> None:
    # Slurm loses the signal to a rank that it has not started yet, so rank 1 waits for rank 0
    # before it fails.
    waits = (
        'echo "$1 $RANK of $WORLD_SIZE"; touch "started-$RANK"\nuntil [[ -e started-0 ]]; do sleep'
        " 0.1; done\n"
    )
    done = run(
        Program(shell=waits + "[[ $RANK == 1 ]] && exit 7\nsleep 600"), args=("I am",), nodes=2
    )
    assert site.ends(done, "FAILED").exit_code == 7
    assert {"I am 0 of 2", "I am 1 of 2"} <= {*lines(done)}


def test_a_program_that_calls_srun_itself(site: Site, run: Run) -> None:
    """Its exit code is its own, whatever its steps end with."""
    text = """
        srun bash -c "exit 3"
        srun --ntasks-per-node=1 bash -c 'echo "task $SLURM_PROCID"'
        echo "as $RANK of $WORLD_SIZE"
        exit 5
    """
    done = run(Program(shell=text), nodes=2, start="once")
    assert site.ends(done, "FAILED").exit_code == 5
    assert {"task 0", "task 1", "as 0 of 2"} <= {*lines(done)}
    assert lines(done)[-1] == "as 0 of 2"


def test_a_program_that_starts_once_ends_when_it_is_cancelled(site: Site, run: Run) -> None:
    stopped = run(
        Program(shell="echo started; sleep 600"),
        start="once",
        after=Program(argv=("touch", "after")),
    )
    site.says(stopped, "started")
    site.cluster().cancel([stopped])
    site.ends(stopped, "CANCELLED")
    site.comes_to_rest()
    assert not (stopped.work / "after").exists()


def test_servers_on_two_nodes_with_one_client(site: Site, run: Run) -> None:
    server = Server(
        program=Program(argv=(PYTHON, "-c", SERVER)), ready_seconds=120, on_every_rank=True
    )
    done = run(Program(argv=(PYTHON, "-c", CLIENT)), server=server, nodes=2, ranks_per_node=2)
    site.ends(done)
    assert lines(done) == [f"rank {rank}" for rank in range(4)]
    site.comes_to_rest()


def test_a_server_for_a_program_that_starts_once(site: Site, run: Run) -> None:
    server = Server(program=Program(argv=(PYTHON, "-c", SERVER)), ready_seconds=120)
    done = run(Program(argv=(PYTHON, "-c", CLIENT)), server=server, nodes=2, start="once")
    site.ends(done)
    assert lines(done) == ["rank 0"]


def test_a_server_that_ends_fails_the_run_with_its_code_and_output(site: Site, run: Run) -> None:
    failed = run(
        Program(argv=("sleep", "600")),
        server=Server(
            program=Program(shell="echo ready; sleep 2; echo 'no memory' >&2; exit 9"),
            ready_text="ready",
        ),
        nodes=2,
    )
    assert site.ends(failed, "FAILED").exit_code == 9
    assert "no memory" in failed.log.read_text()


def test_the_time_limit_ends_server_and_client(site: Site, run: Run) -> None:
    """Slurm kills them one second after SIGTERM here, so that the tests of local runs prove that
    SIGTERM arrives.
    """
    waits = "echo $$ > pid-{0}; sleep 600 & wait"
    server = Server(
        program=Program(shell="echo ready; " + waits.format("server")), ready_text="ready"
    )
    slow = run(Program(shell=waits.format("client")), server=server)
    pids = [int(site.text(slow, name)) for name in ("pid-server", "pid-client")]
    site.kit.run("scontrol", "update", f"jobid={slow.scheduler_id}", "EndTime=now+2")
    site.ends(slow, "TIMEOUT")
    site.comes_to_rest()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_mpi_needs_a_plugin_of_srun(site: Site, kit: Any, site_at: Callable[..., Site]) -> None:
    launch = site.launch("", program=Program(argv=("true",)), start="mpi", venv=None)
    assert "no-mpi" in {fault.code for fault in site.cluster().preflight([launch])}
    able = site_at(
        kit,
        "other",
        slurm={"container": "none", "mpi": "pmi2", "gpu": {"partition": "gpu", "gres": 8}},
    )
    assert able.cluster().preflight([launch]) == []


@pytest.mark.slow
def test_ranks_meet_by_mpi(kit: Any, site_at: Callable[..., Site], mpi_venv: Path) -> None:
    site = site_at(
        kit, slurm={"container": "none", "mpi": "pmi2", "gpu": {"partition": "gpu", "gres": 8}}
    )
    text = (
        "import os\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\n"
        "total = world.allreduce(world.rank)\n"
        "open(f'rank{world.rank}', 'w').write(f'{os.environ[\"RANK\"]} of {world.size}: {total}')\n"
    )
    done = site.submit(text, nodes=2, ranks_per_node=2, start="mpi", venv=str(mpi_venv))
    site.ends(done)
    assert [(done.work / f"rank{rank}").read_text() for rank in range(4)] == [
        f"{rank} of 4: 6" for rank in range(4)
    ]
