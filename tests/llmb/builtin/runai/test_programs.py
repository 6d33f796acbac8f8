# SPDX-License-Identifier: Apache-2.0
"""Tests of programs of any kind in pods that really run: commands, bash, servers with clients, MPI;
without torch.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.launch import Program, Server, StagedFile
from llmb_testing.runai import ControlPlane

Site = Any  # the class is in conftest.py
PYTHON = sys.executable
SERVER = """\
import http.server, os
http.server.HTTPServer(("", int(os.environ["LLMB_SERVER_PORT"])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
CLIENT = """\
import os, urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:{os.environ['LLMB_SERVER_PORT']}/data").read().decode())
"""


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 240
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


def ends(site: Site, run: Any, expected: str) -> Any:
    """The end of the run, which must be ``expected``."""
    cluster = site.cluster()
    found = wait_until(
        lambda: (state := cluster.poll([run])[run.id]).is_end and state, f"the end of {run.id}"
    )
    logs = [
        f"{path.name}:\n{path.read_text()}" for path in (run.batch_log, run.log) if path.exists()
    ]
    assert found.state == expected, "\n".join([str(found), *logs])
    return found


def lines(run: Any) -> list[str]:
    text: str = run.log.read_text()
    return text.splitlines()


def test_a_command_needs_no_torch_in_its_image(site: Site) -> None:
    staged = (
        StagedFile(name="own", text='#!/bin/sh\necho "$* $RANK of $WORLD_SIZE"\n', executable=True),
    )
    done = site.submit(
        program=Program(argv=("./own", "it's")),
        args=("$HOME",),
        files=staged,
        after=Program(shell="echo after"),
    )
    ends(site, done, "COMPLETED")
    assert lines(done) == ["it's $HOME 0 of 1", "after"]


RANK = """\
import importlib.util, os
names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
with open(f"rank{os.environ['RANK']}", "w") as stream:
    print(*map(os.environ.get, names), importlib.util.find_spec("torch"), file=stream)
"""


def test_ranks_of_several_pods_start_with_a_python_that_has_no_torch(site: Site) -> None:
    done = site.submit(program=Program(argv=(PYTHON, "-c", RANK)), nodes=2, ranks_per_node=2)
    ends(site, done, "COMPLETED")
    ranks = [(done.work / f"rank{rank}").read_text().split() for rank in range(4)]
    assert ranks == [
        ["0", "0", "0", "4", "2", "None"],
        ["1", "1", "0", "4", "2", "None"],
        ["2", "0", "1", "4", "2", "None"],
        ["3", "1", "1", "4", "2", "None"],
    ]


def test_a_program_that_starts_once(site: Site) -> None:
    done = site.submit(
        program=Program(shell='echo "$LLMB_RANK of $WORLD_SIZE, $LOCAL_WORLD_SIZE here"; exit 6'),
        ranks_per_node=4,
        start="once",
    )
    assert ends(site, done, "FAILED").exit_code == 6
    assert lines(done) == ["0 of 4, 4 here"]


def test_paths_of_the_volume_are_those_of_the_pod(site: Site) -> None:
    pvc = site.config.section.pvc
    here = f"{pvc.mount}/folder"
    done = site.submit(
        program=Program(shell=f"echo {here} $1"), args=(here,), after=Program(argv=("echo", here))
    )
    ends(site, done, "COMPLETED")
    there = f"{pvc.path}/folder"
    assert lines(done) == [f"{there} {there}", there]


def test_a_server_with_its_client(site: Site) -> None:
    server = Server(program=Program(argv=(PYTHON, "-c", SERVER)), ready_seconds=120)
    done = site.submit(
        program=Program(argv=(PYTHON, "-c", CLIENT)),
        server=server,
        files=(StagedFile(name="data", text="staged"),),
    )
    ends(site, done, "COMPLETED")
    assert lines(done) == ["staged"]


def test_the_time_limit_ends_server_and_client(site: Site) -> None:
    server = Server(
        program=Program(shell="echo $$ > pid-server; echo ready; sleep 600 & wait"),
        ready_text="ready",
    )
    stopped = site.submit(
        program=Program(shell="echo $$ > pid-client; sleep 600 & wait"), server=server, time_limit=3
    )
    ends(site, stopped, "TIMEOUT")
    pids = [int((stopped.work / name).read_text()) for name in ("pid-server", "pid-client")]
    wait_until(lambda: not any(map(_runs, pids)), "the end of server and client")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("start", ["once", "mpi"])
def test_several_pods_cannot_start_so(site: Site, start: str) -> None:
    launch = site.launch(nodes=2, start=start)
    assert "start-unsupported" in {fault.code for fault in site.cluster().preflight([launch])}


@pytest.mark.parametrize(
    ("key", "size", "steps"), [("storage", "write", 10), ("requests", "files", 20)]
)
def test_a_documented_plugin_runs_unchanged(
    key: str,
    size: str,
    steps: int,
    plane: ControlPlane,
    site_at: Callable[..., Site],
    documented_plugins: Path,
) -> None:
    site = site_at(plane, workloads={"installed": ["storage", "requests"]})
    own = {"PYTHONPATH": str(documented_plugins)}
    done = site.llmb("single", "-w", key, "-s", size, "--scale", 1, "--wait", **own)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(site.llmb("results", "--format", "json", **own).stdout)["results"]
    assert (result["status"], result["steps"]) == ("Success", steps), result
