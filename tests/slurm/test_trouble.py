# SPDX-License-Identifier: Apache-2.0
"""Tests of clusters that do not answer, have no accounting, or have forgotten a job."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from llmb.clusters.base import UnclearError
from llmb.clusters.slurm.commands import SilentError
from llmb.clusters.slurm.partitions import NodeWait
from llmb.errors import LlmbError
from llmb.runs import looks, store
from llmb.runs.state import ACTIVE, JobState
from llmb.submission.follow import poll

pytestmark = pytest.mark.fault("slurm-trouble")

Site = Any  # the class is in conftest.py
PATIENCE = 180.0  # seconds until a test gives up
SLEEP = "import time; print('started', flush=True); time.sleep(600)"
# RUNNING comes before the script asks the controller for the step of its ranks, which a stop would break: so it tells.
WAIT_FOR_GO = """\
import os, sys, time
print("started", flush=True)
while not os.path.exists("go"): time.sleep(0.05)
sys.exit(4)
"""


def test_without_accounting_the_queue_tells(bare_site: Site) -> None:
    cluster = bare_site.cluster()
    run = bare_site.submit(WAIT_FOR_GO)
    bare_site.reaches(run, "RUNNING", cluster=cluster)
    assert not cluster.memory.has_accounting
    (run.work / "go").touch()
    assert bare_site.ends(run, "FAILED", cluster=cluster).exit_code == 4


def test_a_forgotten_job_ends_as_its_own_files_say(bare_site: Site) -> None:
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
    assert end.reason == f"by its own files; Slurm no longer knows job {failed.scheduler_id}"
    assert bare_site.poll(cancelled).state == "CANCELLED", bare_site.all_of(cancelled)


def test_a_job_that_left_nothing_is_lost_only_after_a_while(bare_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was cancelled before it started, and nobody looked while the controller knew."""
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
    assert f"Slurm no longer knows job {run.scheduler_id}" in seen.reason
    monkeypatch.setattr(looks, "SECOND_LOOK", 0.0)
    end = poll(bare_site.cluster(), [run])[run.id]
    assert (end.state, end.is_final) == ("LOST", False)
    assert "it left no end; last seen PENDING" in end.reason
    away = poll(bare_site.cluster(), [replace(run, cluster="Slurm cluster alpha")])[run.id]
    assert away.is_elsewhere


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
    """A controller that has started and not heard of its nodes; calling it lets them register."""
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
    bare_site: Site, unheard_nodes: Callable[[], None]
) -> None:
    """Until they register, Slurm refuses to test any job for want of nodes, and yet takes the job itself."""
    with pytest.raises(LlmbError, match="Requested node configuration is not available"):
        bare_site.kit.run("sbatch", "--test-only", "--nodes=1", "--wrap=true")
    printed = []

    def announce(text: str) -> None:
        printed.append(text)
        unheard_nodes()

    cluster = replace(bare_site.cluster(), patience=NodeWait(announce=announce, left=PATIENCE))
    assert cluster.preflight([bare_site.launch("", nodes=2)]) == []
    assert printed == ["note: waiting up to 180 s until Slurm knows the state of nodes n[1-2]"]


def test_nodes_that_do_not_register_are_named(bare_site: Site, unheard_nodes: Callable[[], None]) -> None:
    """What is refused for another reason is not held up by them."""
    cluster = replace(bare_site.cluster(), patience=NodeWait(left=0.5))
    (fault,) = cluster.preflight([bare_site.launch("")])
    assert fault.message == "Slurm does not know the state of nodes n[1-2] yet"
    assert "--no-preflight" in fault.hint
    cluster.patience.announce = pytest.fail
    cluster.patience.left = PATIENCE
    (fault,) = cluster.preflight([bare_site.launch("", slurm_args={"constraint": "nowhere"})])
    assert "Invalid feature specification" in fault.message


def test_a_controller_that_does_not_answer_is_no_end(bare_site: Site) -> None:
    run = bare_site.submit(WAIT_FOR_GO)
    bare_site.says(run, "started")
    impatient = bare_site.cluster(ask_seconds=1)
    bare_site.kit.pause("slurmctld")
    try:
        with pytest.raises(SilentError, match="did not answer within 1 s"):
            impatient.poll([run])
        with pytest.raises(LlmbError):
            impatient.find([replace(run, id="unknown", directory=run.directory / "nowhere")])
        (fault, *_) = impatient.preflight([run.launch])
        assert "did not answer" in fault.message
    finally:
        bare_site.kit.resume("slurmctld")
    (run.work / "go").touch()
    patient = replace(impatient, client=bare_site.cluster().client)
    assert bare_site.ends(run, "FAILED", cluster=patient).exit_code == 4


def test_commands_that_look_once_show_what_was_seen_last(bare_site: Site) -> None:
    done = bare_site.llmb(
        "single", "-w", "nemotron4", "-s", "tiny", "--dtype", "fp32", "--scale", 1, "--slurm-arg", "hold"
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(bare_site.llmb("jobs", "list", "--format", "json").stdout)
    bare_site.kit.pause("slurmctld")
    try:
        done = bare_site.llmb("jobs", "list", "--format", "json")
        shown = bare_site.llmb("results", "--format", "json")
    finally:
        bare_site.kit.resume("slurmctld")
    for one in (done, shown):
        assert (one.returncode, one.stderr.startswith("note: states as they were seen last")) == (0, True), one.stderr
    assert json.loads(done.stdout) == seen
    assert [row["status"] for row in json.loads(shown.stdout)["results"]] == ["Pending"]


def test_a_submission_without_an_answer_is_found_afterwards(bare_site: Site) -> None:
    """The controller had it all the time: it is unclear, and nobody submits it again."""
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
        with pytest.raises(UnclearError, match="Unable to contact slurm controller"):
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


def test_what_a_silent_queue_leaves_open_stays_as_it_was(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounting knows the one job and not yet the other."""
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
    assert "did not answer" in states[new.id].reason


def test_a_run_is_found_wherever_it_is(site: Site) -> None:
    """By its own file, by its name in the queue, by its name in accounting, or nowhere."""
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
