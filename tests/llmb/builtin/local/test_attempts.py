# SPDX-License-Identifier: Apache-2.0
"""Tests of what this machine does with cut-off submissions and with further attempts: real
supervisors and runners.
"""

from dataclasses import replace
from typing import Any

import pytest

from llmb.builtin.local import journal, queue
from llmb.contract import record
from llmb.contract.state import COMPLETED, FAILED, NOT_SUBMITTED
from llmb.errors import LlmbError
from llmb.measure.find_logs import log_of
from llmb.run import store
from llmb.run.polling import poll
from llmb.run.reconcile import resubmit
from llmb.run.retry import retry

Machine = Any

# Fails the first time that it is run, and says where it ran.
SECOND_TIME = """
import os, pathlib, sys
print("in", os.getcwd(), os.environ["LLMB_RUN_ID"], flush=True)
mark = pathlib.Path({mark!r})
first = not mark.exists()
mark.touch()
sys.exit(3 if first else 0)
"""


def test_a_second_attempt_runs_with_files_of_its_own(machine: Machine) -> None:
    cluster = machine.cluster()
    run = machine.submit(SECOND_TIME.format(mark=str(machine.root / "mark")))
    run = run.submitted(run.id)
    record.save(run)
    machine.wait_until(lambda: poll(cluster, [run])[run.id].is_end, "the first attempt")
    assert poll(cluster, [run])[run.id].state == FAILED
    ((one,), _) = retry(cluster, [run])
    again = one.run
    assert (one.error, again.attempt, again.scheduler_id) == (None, 2, f"{run.id}-2")
    machine.wait_until(
        lambda: poll(cluster, [again])[run.id].is_end, f"the second attempt; {machine.log}"
    )
    assert poll(cluster, [again])[run.id].state == COMPLETED
    folder = run.directory / "attempt-2"
    assert {path.name for path in folder.iterdir() if ".lock." not in path.name} == {
        "launch.json",
        "log-job.out",
        "sbatch_job.out",
        "scheduler.json",
        "state.json",
    }
    assert again.log.read_text() == f"in {folder} {run.id}-2\n"
    assert run.log.read_text() == f"in {run.work} {run.id}\n"
    assert log_of(record.load(run.directory)) == again.log
    first, second = journal.read(run.place), journal.read(again.place)
    assert first is not None
    assert second is not None
    assert (first.id, second.id) == (run.id, f"{run.id}-2")


def test_what_never_reached_the_queue_is_submitted_once(machine: Machine) -> None:
    cluster = machine.cluster()
    run = machine.record(machine.launch("print('ran', flush=True)"))
    assert poll(cluster, [run])[run.id].state == NOT_SUBMITTED
    for _ in range(2):
        resubmit(cluster, [run])
    now = record.load(run.directory)
    assert now.scheduler_id == run.id
    machine.ends(now)
    assert now.log.read_text() == "ran\n"


@pytest.mark.parametrize("over", [False, True])
def test_what_reached_the_queue_is_found_before_it_runs_and_after(
    over: bool, machine: Machine
) -> None:
    cluster = machine.cluster()
    run = machine.submit("import time; time.sleep(0.2)")
    if over:
        machine.end(run)
    assert cluster.find([run]) == {run.id: run.id}
    poll(cluster, [run])
    assert record.load(run.directory).scheduler_id == run.id
    machine.ends(run)


@pytest.mark.parametrize("cluster", ["the queue in /x on far", None])
def test_another_hosts_run_keeps_no_run_of_this_host_waiting(
    machine: Machine, cluster: str | None
) -> None:
    mine, other = (
        machine.record(machine.launch("pass", name="mine")),
        machine.record(machine.launch("pass", name="other")),
    )
    other = replace(other, submitter=replace(other.submitter, host="far"), cluster=cluster)
    record.save(other)
    states = poll(machine.cluster(), [other, mine])
    assert states[mine.id].state == NOT_SUBMITTED
    assert states[other.id].is_elsewhere == (cluster is not None)
    results, _ = resubmit(machine.cluster(), [other, mine])
    assert [(one.run.id, one.error is None) for one in results] == [
        (other.id, False),
        (mine.id, True),
    ]
    assert poll(machine.cluster(), [other])[other.id].state == "UNKNOWN"
    machine.ends(record.load(mine.directory))


def test_another_hosts_queue_cannot_be_seen(machine: Machine) -> None:
    run = machine.record(machine.launch("pass"))
    elsewhere = replace(run, submitter=replace(run.submitter, host="far"))
    record.save(elsewhere)
    with pytest.raises(LlmbError) as raised:
        machine.cluster().find([elsewhere])
    assert (raised.value.code, raised.value.value) == ("other-host", "far")
    resubmit(machine.cluster(), [elsewhere])
    assert queue.entries(machine.state) == []
    assert store.seen_state(elsewhere) is None
