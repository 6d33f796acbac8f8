# SPDX-License-Identifier: Apache-2.0
"""Tests of how jobs end on a real cluster, by themselves or from outside, and of the states until
then.
"""

import getpass
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psutil
import pytest

from llmb.builtin.slurm.commands import Client
from llmb.contract.state import ACTIVE, WAITING, JobState
from llmb.core.node_lists import expand
from llmb.run.store import nodes_of

Site = Any  # the class is in conftest.py
Wording = Callable[..., None]

SLEEP = "import time; print('started', flush=True); time.sleep(600)"


def test_no_state_is_reported_that_a_job_does_not_have(site: Site) -> None:
    """Accounting is seconds late and first has ended jobs without a name: that is not the end of
    this job.
    """
    run = site.submit("import sys, time; time.sleep(2); sys.exit(3)")
    cluster = site.cluster()
    seen: list[JobState] = []
    while not seen or not seen[-1].is_end:
        seen.append(cluster.poll([run])[run.id])
        time.sleep(0.02)
    words = list(dict.fromkeys(state.state for state in seen))
    assert words[-1] == "FAILED", seen[-1]
    assert {*words[:-1]} <= WAITING | ACTIVE, seen
    assert seen[-1].exit_code == 3
    assert seen[-1].started is not None
    assert seen[-1].ended is not None
    assert 1 <= seen[-1].ended - seen[-1].started <= time.time() - run.created + 1
    site.is_accounted(run)
    assert site.poll(run).state == "FAILED"
    assert site.poll(run).exit_code == 3


def test_many_jobs_need_one_query(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [site.submit("") for _ in range(4)]
    for run in runs:
        site.is_accounted(run)
    cluster = site.cluster()
    asked: list[str] = []
    ask = Client.ask

    def count(client: Client, argv: Sequence[str]) -> str:
        asked.append(argv[0])
        return ask(client, argv)

    monkeypatch.setattr(Client, "ask", count)
    assert {state.state for state in cluster.poll(runs).values()} == {"COMPLETED"}
    assert asked == ["sacct"]


def test_a_pending_job_has_a_reason_and_can_be_cancelled(site: Site, wording: Wording) -> None:
    first = site.submit(SLEEP, nodes=4)
    site.reaches(first, "RUNNING")
    second = site.submit(SLEEP, nodes=2)
    site.reaches(second, "PENDING")
    cluster = site.cluster()
    site.waits_for(second, "Resources", "Priority", cluster=cluster)
    site.cluster().cancel([first, second])
    for run in (first, second):
        site.ends(run, "CANCELLED")
    site.is_accounted(first)
    wording("jobs list", site.poll(first).reason, {getpass.getuser(): "<user>"})
    site.cluster().cancel([first])  # no effect: it has ended


def test_a_job_whose_id_is_not_known_yet_is_cancelled_by_its_name(site: Site) -> None:
    run = site.submit(SLEEP)
    site.reaches(run, "RUNNING")
    site.forgets_its_id(run)
    site.cluster().cancel([replace(run, scheduler_id=None)])
    site.ends(run, "CANCELLED")


def test_a_job_that_somebody_renames(site: Site) -> None:
    """While it runs and while it waits; it is found, polled and cancelled all the same."""
    running = site.submit(SLEEP, nodes=4)
    site.says(running, "started")
    waiting = site.submit(SLEEP, nodes=4)
    site.reaches(waiting, "PENDING")
    for run in (running, waiting):
        site.kit.run("scontrol", "update", f"jobid={run.scheduler_id}", "JobName=audited")
    cluster = site.cluster()
    assert [state.state for state in cluster.poll([running, waiting]).values()] == [
        "RUNNING",
        "PENDING",
    ]
    unknown = replace(waiting, scheduler_id=None)
    assert cluster.find([unknown]) == {waiting.id: waiting.scheduler_id}
    cluster.cancel([running, unknown])
    for run in (running, waiting):
        site.ends(run, "CANCELLED")


def test_time_limits_and_nodes_that_fail(site: Site, wording: Wording) -> None:
    """In one test, because Slurm takes a while for each."""
    slow = site.submit(SLEEP)
    site.says(slow, "started")
    broken = site.submit(SLEEP, nodes=2)
    site.says(broken, "started")
    site.kit.run("scontrol", "update", f"jobid={slow.scheduler_id}", "EndTime=now+2")
    names = site.kit.run(
        "squeue", "--noheader", f"--jobs={broken.scheduler_id}", "--format=%N"
    ).strip()
    first = site.kit.run("scontrol", "show", "hostnames", names).split()[0]
    # the script's node: for another one, srun loses its connection and the state is FAILED
    site.kit.fail_node(first)
    state = site.ends(broken, "NODE_FAIL")
    # the node that failed, and not the other, which is healthy
    assert first in state.reason
    assert not any(name in state.reason for name in set(expand(names)) - {first})
    # by accounting, and by the script
    assert nodes_of(broken, state) == nodes_of(broken) == tuple(expand(names))
    wording("jobs list", site.ends(slow, "TIMEOUT").reason)
    site.says(slow, "DUE TO TIME LIMIT")


def test_many_submissions_at_a_time(site: Site) -> None:
    cluster = site.cluster()
    runs = [site.record(site.launch("")) for _ in range(12)]
    with ThreadPoolExecutor(cluster.pace.parallel) as pool:
        ids = list(pool.map(cluster.submit, runs))
    assert len(set(ids)) == 12
    assert cluster.find(runs) == {run.id: job_id for run, job_id in zip(runs, ids, strict=True)}


def test_a_script_that_is_killed_on_its_node_has_no_exit_code(site: Site, wording: Wording) -> None:
    """As on a node that fails but still reports the end."""
    run = site.submit(SLEEP)
    site.says(run, "started")
    (path,) = site.kit.folder.glob(f"spool/*/job{int(run.scheduler_id):05d}/slurm_script")
    (script,) = (process for process in psutil.process_iter() if _runs(process, str(path)))
    script.kill()
    end = site.reaches(run)
    assert (end.state, end.exit_code) == ("FAILED", None), end
    wording("jobs list", end.reason)


def _runs(process: psutil.Process, path: str) -> bool:
    """Whether it is the program that slurmd started from the file ``path``."""
    try:
        return path in process.cmdline()
    except psutil.Error:  # it has just ended
        return False
