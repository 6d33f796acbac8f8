# SPDX-License-Identifier: Apache-2.0
"""Tests of clusters that do not answer, have no accounting, or no longer know a job."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from llmb.builtin.slurm.commands import SilentError
from llmb.builtin.slurm.partitions import NodeWait
from llmb.contract import state as job_state
from llmb.contract.cluster import UnclearError
from llmb.contract.state import ACTIVE, JobState
from llmb.errors import LlmbError, PreflightError, describe
from llmb.run import follow, store
from llmb.run.polling import poll

pytestmark = pytest.mark.fault("slurm-trouble")

Site = Any  # the class is in conftest.py
Wording = Callable[..., None]
PATIENCE = 180.0  # seconds until a test gives up
SLEEP = "import time; print('started', flush=True); time.sleep(600)"
# RUNNING comes before the script asks the controller for the step of its ranks, so the ranks print
# when they run.
WAIT_FOR_GO = """\
import os, sys, time
print("started", flush=True)
while not os.path.exists("go"): time.sleep(0.05)
sys.exit(4)
"""


def test_without_accounting_the_queue_has_the_states(bare_site: Site) -> None:
    cluster = bare_site.cluster()
    run = bare_site.submit(WAIT_FOR_GO)
    bare_site.reaches(run, "RUNNING", cluster=cluster)
    assert not cluster.memory.has_accounting
    (run.work / "go").touch()
    assert bare_site.ends(run, "FAILED", cluster=cluster).exit_code == 4


def test_a_forgotten_job_has_the_end_that_its_files_record(
    bare_site: Site, wording: Wording
) -> None:
    failed, cancelled = bare_site.submit(WAIT_FOR_GO), bare_site.submit(SLEEP)
    for run in (failed, cancelled):
        bare_site.begins(run)
    bare_site.says(cancelled, "started")
    (failed.work / "go").touch()
    bare_site.cluster().cancel([cancelled])
    bare_site.comes_to_rest()
    bare_site.kit.forget_jobs()
    end = bare_site.poll(failed)
    assert (end.state, end.exit_code) == ("FAILED", 4), end
    wording("jobs list", end.reason, {f"job {failed.scheduler_id}": "job <id>"})
    assert bare_site.poll(cancelled).state == "CANCELLED", bare_site.all_of(cancelled)


def test_a_job_that_left_nothing_is_lost_only_after_a_while(
    bare_site: Site, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Cancelled before it started, and not polled while the controller knew it."""
    first = bare_site.submit(SLEEP, nodes=2)
    bare_site.reaches(first, "RUNNING")
    run = bare_site.submit(SLEEP, nodes=2)
    store.save_state(run, bare_site.reaches(run, "PENDING"))
    bare_site.cluster().cancel([run])
    bare_site.is_not_in_the_queue(run)  # else it might start on the nodes of the other
    bare_site.cluster().cancel([first])
    bare_site.comes_to_rest()
    bare_site.kit.forget_jobs()
    run = replace(run, cluster=bare_site.cluster().identity())
    assert run.cluster == "Slurm cluster kit"
    seen = poll(bare_site.cluster(), [run])[run.id]
    assert (seen.state, seen.is_end) == ("PENDING", False)
    hidden = {f"job {run.scheduler_id}": "job <id>"}
    wording("jobs list", seen.reason, hidden)
    monkeypatch.setattr(job_state, "CONFIRM_AFTER", 0.0)
    end = poll(bare_site.cluster(), [run])[run.id]
    assert (end.state, end.is_final) == ("LOST", False)
    wording("jobs list", end.reason, hidden)
    away = poll(bare_site.cluster(), [replace(run, cluster="Slurm cluster alpha")])[run.id]
    assert away.is_elsewhere


def test_a_job_of_others_that_has_taken_a_runs_id_is_not_cancelled(bare_site: Site) -> None:
    """As when the controller has lost its state, and counts ids from the start again."""
    hold = {"slurm_args": {"hold": True}}
    gone, array, single = (bare_site.submit(SLEEP, **hold) for _ in range(3))
    for run in (gone, array, single):
        store.save_state(run, bare_site.reaches(run, "PENDING"))
    bare_site.kit.forget_jobs(next_job=int(array.scheduler_id))
    foreign = ("sbatch", "--parsable", "--hold", "--job-name=production", "--wrap=sleep 100")
    assert bare_site.kit.run(*foreign, "--array=0-3").strip() == array.scheduler_id
    assert bare_site.kit.run(*foreign).strip() == single.scheduler_id
    renamed = bare_site.submit(SLEEP, **hold)
    bare_site.kit.run("scontrol", "update", f"jobid={renamed.scheduler_id}", "JobName=audited")
    outcome = follow.cancel(bare_site.cluster(), [array, single, gone, renamed])
    assert outcome.cancelling == [renamed]
    assert {run.id: reason for run, reason in outcome.not_cancelled} == {
        array.id: f"job {array.scheduler_id} is now another job (production)",
        single.id: f"job {single.scheduler_id} is now another job (production)",
        gone.id: f"Slurm does not know job {gone.scheduler_id}: nothing to cancel",
    }
    bare_site.is_not_in_the_queue(renamed)
    left = bare_site.kit.run("squeue", "--noheader", "--format=%i %T").splitlines()
    assert sorted(left) == [f"{array.scheduler_id}_[0-3] PENDING", f"{single.scheduler_id} PENDING"]


def test_jobs_outlive_a_restart_of_the_controller(site: Site) -> None:
    run = site.submit(WAIT_FOR_GO)
    site.says(run, "started")
    site.kit.stop_controller()
    site.kit.start_controller()
    state = site.poll(run)
    assert state.state in ACTIVE, state
    (run.work / "go").touch()
    assert site.ends(run, "FAILED").exit_code == 4


@pytest.fixture
def unheard_nodes(bare_site: Site) -> Iterator[Callable[[], None]]:
    """A started controller without registered nodes. Calling the value lets them register."""
    kit = bare_site.kit
    nodes = [f"slurmd.{node}" for node in kit.nodes]

    def register() -> None:
        for node in nodes:
            kit.resume(node)

    for node in nodes:
        kit.pause(node)
    try:
        kit.stop_controller()
        kit.start_controller()
        assert "unknown" in kit.run("sinfo", "--noheader", "--format=%T")
        yield register
    finally:
        register()


def test_nodes_that_a_new_controller_has_not_heard_of_are_waited_for(
    bare_site: Site, unheard_nodes: Callable[[], None], wording: Wording
) -> None:
    """Until they register, `sbatch --test-only` fails for lack of nodes, although Slurm would take
    the job.
    """
    with pytest.raises(LlmbError, match="node configuration"):  # Slurm's own words
        bare_site.kit.run("sbatch", "--test-only", "--nodes=1", "--wrap=true")
    notes = []

    def announce(text: str) -> None:
        notes.append(text)
        unheard_nodes()

    cluster = replace(bare_site.cluster(), patience=NodeWait(announce=announce, left=PATIENCE))
    assert cluster.preflight([bare_site.launch("", nodes=2)]) == []
    (note,) = notes
    wording("single", note)


def test_nodes_that_do_not_register_are_named(
    bare_site: Site, unheard_nodes: Callable[[], None], wording: Wording
) -> None:
    """A job that is refused for another reason does not wait for them."""
    cluster = replace(bare_site.cluster(), patience=NodeWait(left=0.5))
    (fault,) = cluster.preflight([bare_site.launch("")])
    wording("single", describe(PreflightError([fault])))
    cluster.patience.announce = pytest.fail
    cluster.patience.left = PATIENCE
    (fault,) = cluster.preflight([bare_site.launch("", slurm_args={"constraint": "nowhere"})])
    assert "Invalid feature specification" in fault.message


def test_a_controller_that_does_not_answer_is_not_an_end(bare_site: Site, wording: Wording) -> None:
    run = bare_site.submit(WAIT_FOR_GO)
    bare_site.says(run, "started")
    impatient = bare_site.cluster(ask_seconds=1)
    bare_site.kit.pause("slurmctld")
    try:
        with pytest.raises(SilentError):
            impatient.poll([run])
        with pytest.raises(LlmbError):
            impatient.find([replace(run, id="unknown", directory=run.directory / "nowhere")])
        (fault, *_) = impatient.preflight([run.launch])
        wording("single", describe(PreflightError([fault])))
    finally:
        bare_site.kit.resume("slurmctld")
    (run.work / "go").touch()
    patient = replace(impatient, client=bare_site.cluster().client)
    assert bare_site.ends(run, "FAILED", cluster=patient).exit_code == 4


def test_commands_that_poll_once_show_the_last_known_states(
    bare_site: Site, wording: Wording
) -> None:
    done = bare_site.llmb(
        "single",
        "-w",
        "nemotron4",
        "-s",
        "tiny",
        "--dtype",
        "fp32",
        "--scale",
        1,
        "--slurm-arg",
        "hold",
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(bare_site.llmb("jobs", "list", "--session", "all", "--format", "json").stdout)
    bare_site.kit.pause("slurmctld")
    try:
        done = bare_site.llmb("jobs", "list", "--session", "all", "--format", "json")
        shown = bare_site.llmb("results", "--format", "json")
    finally:
        bare_site.kit.resume("slurmctld")
    assert (done.returncode, shown.returncode) == (0, 0), shown.stderr
    wording("jobs list", done.stderr)
    wording("results", shown.stderr)
    assert json.loads(done.stdout) == seen
    assert [row["status"] for row in json.loads(shown.stdout)["results"]] == ["Pending"]


def test_a_submission_without_an_answer_is_found_afterwards(bare_site: Site) -> None:
    """The controller has the job. The submission is unclear, and is not repeated."""
    run = bare_site.record(bare_site.launch("print('once')"))
    cluster = bare_site.cluster()
    bare_site.kit.pause("slurmctld")
    try:
        with pytest.raises(UnclearError):
            cluster.submit(run)
    finally:
        bare_site.kit.resume("slurmctld")
    job_id = bare_site.arrives(run, cluster)
    assert bare_site.ends(run.submitted(job_id))
    assert cluster.submit(run) == job_id
    assert run.log.read_text() == "once\n"


def test_a_controller_that_is_down_takes_nothing(bare_site: Site) -> None:
    run = bare_site.record(bare_site.launch("print('once')"))
    bare_site.kit.stop_controller()
    try:
        with pytest.raises(UnclearError, match="slurm controller"):  # Slurm's own words
            bare_site.cluster().submit(run)
    finally:
        bare_site.kit.start_controller()
    assert bare_site.cluster().find([run]) == {}


def test_an_accounting_that_does_not_answer_is_left_alone_for_a_while(site: Site) -> None:
    run = site.submit(WAIT_FOR_GO)
    site.says(run, "started")
    cluster = site.cluster(ask_seconds=5)
    cluster.memory.rest = 3600.0  # longer than this takes on any machine
    site.kit.pause("slurmdbd")
    try:
        assert cluster.poll([run])[run.id].state == "RUNNING"
        rest = cluster.memory.rest_until
        assert rest > time.monotonic()
        patient = replace(cluster, client=site.cluster().client)
        assert patient.poll([run])[run.id].state == "RUNNING"
        assert cluster.memory.rest_until == rest  # it was not asked again
    finally:
        site.kit.resume("slurmdbd")
    assert cluster.memory.has_accounting


def test_states_that_a_silent_queue_leaves_open_stay_as_they_were(
    site: Site, wording: Wording
) -> None:
    """Accounting knows one job, but not the other yet."""
    old = site.submit("")
    site.is_accounted(old)
    site.kit.stop_accounting()
    new = site.submit(SLEEP)
    store.save_state(new, JobState(state="RUNNING", started=1.0))
    site.kit.pause("slurmctld")
    try:
        site.kit.start_accounting()
        states = site.cluster(ask_seconds=10).poll([old, new])
    finally:
        site.kit.resume("slurmctld")
    assert states[old.id].state == "COMPLETED"
    assert states[new.id].state in {"RUNNING", "PENDING"}
    wording("jobs list", states[new.id].reason)


def test_a_run_is_found_wherever_it_is(site: Site) -> None:
    """By its file, by its name in the queue or in accounting, or not at all."""
    ended = site.submit("", nodes=1)
    site.reaches(ended, "COMPLETED")
    running = site.submit(SLEEP, nodes=4, name="it's a, b|c ü")
    site.reaches(running, "RUNNING")
    waiting = site.submit(SLEEP, nodes=4)
    never = site.record(site.launch("", name="job, never sent"))
    site.forgets_its_id(running)
    runs = [replace(run, scheduler_id=None) for run in (ended, running, waiting, never)]
    expected = {run.id: run.scheduler_id for run in (ended, running, waiting)}
    assert site.cluster().find(runs) == expected
    site.cluster().cancel([running, waiting])
    for run in (ended, running, waiting):
        site.is_accounted(run)
        (run.place / "scheduler_id").unlink(missing_ok=True)
    site.comes_to_rest()
    site.kit.forget_jobs()
    assert site.cluster().find(runs) == expected
