# SPDX-License-Identifier: Apache-2.0
"""The cluster's own methods on a control plane without pods: submit, find, poll, cancel,
preflight.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract import record
from llmb.contract.cluster import UnclearError
from llmb.contract.launch import Launch
from llmb.contract.record import RunRecord
from llmb.contract.state import LOST, JobState
from llmb.errors import Fault, LlmbError, PreflightError, describe
from llmb.run import store
from llmb.run.store import nodes_of
from llmb_runai import runai_cluster as module
from llmb_runai.rest_errors import RefusedRequestError
from llmb_testing.runai import ControlPlane, RunaiCluster, RunaiProject, Trouble

Site = Any  # the class is in conftest.py
CREATE = "/workloads/(trainings|distributed)"


def state(site: Site, run: RunRecord) -> JobState:
    found: JobState = site.cluster().poll([run])[run.id]
    return found


def test_a_submitted_run_is_a_workload_of_its_name(paper_site: Site, paper: ControlPlane) -> None:
    run = paper_site.submit(nodes=4, name="Job_With.Dots")
    (workload,) = paper.workloads
    assert (workload.id, workload.kind) == (run.scheduler_id, "distributed")
    assert workload.name == f"job-with-dots-{run.id}"
    assert workload.body["projectId"] == "4500001"
    assert workload.body["spec"]["args"] == str(run.script)
    assert (paper_site.install / ".llmb/programs").is_dir()


def test_an_answer_that_was_lost_is_unclear_and_the_run_is_found(
    paper_site: Site, paper: ControlPlane
) -> None:
    paper.trouble(Trouble(path=CREATE, answer="lost"))
    run, cluster = paper_site.record(paper_site.launch()), paper_site.cluster()
    with pytest.raises(UnclearError):
        cluster.submit(run)
    assert cluster.find([run]) == {run.id: paper.workloads[0].id}


def test_a_run_that_was_taken_by_a_busy_server_is_not_refused_for_its_name(
    paper_site: Site, paper: ControlPlane
) -> None:
    run, cluster = paper_site.record(paper_site.launch()), paper_site.cluster()
    first = cluster.submit(run)
    assert cluster.submit(run) == first
    assert len(paper.workloads) == 1


def test_a_storm_of_429_and_503_ends_in_each_run_once(
    paper_site: Site, paper: ControlPlane
) -> None:
    cluster = paper_site.cluster()
    paper.trouble(*(Trouble(path=CREATE, answer=status, times=2) for status in (429, 503)))
    for _ in range(5):
        cluster.submit(paper_site.record(paper_site.launch()))
    assert len(paper.workloads) == 5


def test_a_policy_refuses_and_says_why(paper_site: Site, paper: ControlPlane) -> None:
    paper.issues = lambda body: [{"field": "spec.image", "details": "from our registry only"}]
    with pytest.raises(RefusedRequestError) as caught:
        paper_site.submit()
    issue = "spec.image: from our registry only"
    assert (caught.value.code, caught.value.value) == ("policy", (issue,))
    assert paper.workloads == []


@pytest.mark.parametrize("count", [2, 5])  # by name each, and as a list
def test_runs_are_found_by_their_names_and_also_the_deleted(
    paper_site: Site, paper: ControlPlane, count: int
) -> None:
    runs = [paper_site.submit() for _ in range(count)]
    stranger = paper_site.record(paper_site.launch())
    paper.delete(paper.workloads[0])
    found = paper_site.cluster().find(
        [*(replace(run, scheduler_id=None) for run in runs), stranger]
    )
    assert found == {run.id: run.scheduler_id for run in runs}


def test_runs_are_found_on_later_pages(
    paper_site: Site, paper: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmb_runai.rest.PAGE", 3)
    runs = [paper_site.submit() for _ in range(11)]
    cluster = paper_site.cluster()
    assert cluster.find(runs) == {run.id: run.scheduler_id for run in runs}
    before = len(paper.requests)
    assert {state.state for state in cluster.poll(runs).values()} == {"PENDING"}
    asked = paper.requests[before:]
    assert asked.count(("GET", "/workloads")) == 4  # pages, however many runs
    assert len(asked) == 4 + 3  # why the first three wait


def test_an_api_that_cannot_filter_by_project_lists_all(
    paper_site: Site, paper: ControlPlane
) -> None:
    runs = [paper_site.submit() for _ in range(4)]
    other = RunaiProject(id="9", name="other", cluster="c1")
    paper.add("trainings", dict(paper.workloads[0].body), other)  # of the same name
    paper.trouble(Trouble(method="GET", path="/workloads", answer=400))
    cluster = paper_site.cluster()
    assert cluster.find(runs) == {run.id: run.scheduler_id for run in runs}
    before = len(paper.requests)
    assert len(cluster.poll(runs)) == 4
    assert paper.requests[before:].count(("GET", "/workloads")) == 1


def test_a_run_that_left_a_trace_is_known_even_if_run_ai_has_forgotten_it(
    paper_site: Site, paper: ControlPlane
) -> None:
    run = paper_site.submit()
    paper.forget(paper.workloads[0])
    cluster = paper_site.cluster()
    assert cluster.find([run]) == {}
    (run.directory / "scheduler_id").write_text(f"job-{run.id}\nstarted 1\n")
    assert cluster.find([run]) == {run.id: f"job-{run.id}"}
    (run.directory / "ended").write_text("0\nended 2\n")
    assert state(paper_site, run.submitted(f"job-{run.id}")).state == "COMPLETED"


def test_a_run_that_is_known_by_its_name_holds_up_no_other(
    paper_site: Site, paper: ControlPlane
) -> None:
    """The API takes ids only: it answers 400 to another word."""
    paper.phases = ("Running",)
    forgotten, run = paper_site.submit(), paper_site.submit()
    paper.forget(paper.workloads[0])
    named = forgotten.submitted(f"job-{forgotten.id}")
    cluster = paper_site.cluster()
    states = cluster.poll([named, run])
    assert (states[named.id].state, states[run.id].state) == ("UNKNOWN", "RUNNING")
    cluster.cancel([named, run])
    assert [workload.phase for workload in paper.workloads] == ["Stopped"]
    assert 400 not in paper.answers


@pytest.mark.parametrize("status", [400, 403, 500])
@pytest.mark.parametrize("count", [2, 5])  # one by one, and as a list
def test_a_workload_that_is_not_shown_holds_up_no_other(
    paper_site: Site, paper: ControlPlane, status: int, count: int
) -> None:
    paper.phases = ("Running",) * 9
    runs = [paper_site.submit() for _ in range(count)]
    hidden = runs[0]
    store.save_state(hidden, JobState(state="RUNNING"))
    project = RunaiProject(id="9", name="other", cluster="c1")
    paper.workloads[0].project = project  # no list has it
    paper.trouble(Trouble(path=f"/workloads/{hidden.scheduler_id}", answer=status, times=9))
    states = paper_site.cluster().poll(runs)
    assert {state.state for state in states.values()} == {"RUNNING"}
    assert [str(status) in states[run.id].reason for run in runs] == [True] + [False] * (count - 1)
    assert states[hidden.id].is_doubtful
    with pytest.raises(LlmbError, match=str(status)):
        paper_site.cluster().poll([hidden])
    (hidden.directory / "scheduler_id").write_text(f"job-{hidden.id}\nstarted 1\n")
    (hidden.directory / "ended").write_text("0\nended 2\n")
    assert paper_site.cluster().poll([hidden])[hidden.id].state == "COMPLETED"


def test_a_workload_that_was_never_shown_has_an_unknown_state(
    paper_site: Site, paper: ControlPlane
) -> None:
    paper.phases = ("Running",) * 9
    hidden, shown = runs = [paper_site.submit() for _ in range(2)]
    paper.trouble(Trouble(path=f"/workloads/{hidden.scheduler_id}", answer=403, times=9))
    states = paper_site.cluster().poll(runs)
    assert (states[hidden.id].state, states[shown.id].state) == ("UNKNOWN", "RUNNING")


def test_a_server_that_is_busy_shows_no_states(paper_site: Site, paper: ControlPlane) -> None:
    paper.phases = ("Running",) * 9
    runs = [paper_site.submit() for _ in range(2)]
    paper.trouble(Trouble(path=f"/workloads/{runs[0].scheduler_id}", answer=503, times=99))
    with pytest.raises(LlmbError, match="503"):
        paper_site.cluster().poll(runs)


def test_every_run_is_cancelled_though_run_ai_refuses_one(
    paper_site: Site, paper: ControlPlane, wording: Callable[..., None]
) -> None:
    paper.phases = ("Running",)
    runs = [paper_site.submit() for _ in range(4)]
    ended = paper.workloads[1]
    ended.script = ["Completed"]
    for workload in (paper.workloads[0], ended):
        paper.trouble(Trouble(path=f".*/{workload.id}/suspend", answer=409))
    with pytest.raises(LlmbError) as caught:
        paper_site.cluster().cancel(runs)
    phases = [workload.phase for workload in paper.workloads]
    assert phases == ["Running", "Completed", "Stopped", "Stopped"]
    assert caught.value.value == (runs[0].id,)
    assert runs[0].id in caught.value.message
    wording("jobs cancel", describe(caught.value), {runs[0].id: "<run>"})


def test_a_workload_that_is_gone_needs_no_cancellation(
    paper_site: Site, paper: ControlPlane
) -> None:
    paper.phases = ("Running",)
    runs = [paper_site.submit() for _ in range(2)]
    gone, running = paper.workloads
    paper.trouble(Trouble(path=f".*/{gone.id}/suspend", answer=409))
    paper.forget(gone)
    paper_site.cluster().cancel(runs)
    assert running.phase == "Stopped"


def test_a_workload_that_run_ai_neither_stops_nor_shows_may_still_run(
    paper_site: Site, paper: ControlPlane
) -> None:
    run = paper_site.submit()
    (workload,) = paper.workloads
    paper.trouble(Trouble(path=f".*/{workload.id}/suspend", answer=409))
    paper.trouble(Trouble(path=f"/workloads/{workload.id}", answer=403, times=99))
    with pytest.raises(LlmbError) as caught:
        paper_site.cluster().cancel([run])
    assert caught.value.value == (run.id,)


def test_no_runs_have_no_states(paper_site: Site, paper: ControlPlane) -> None:
    assert paper_site.cluster().poll([]) == {}


def test_a_server_that_stops_answering_leaves_the_others_named(
    paper_site: Site, paper: ControlPlane
) -> None:
    runs = [paper_site.submit() for _ in range(3)]
    second = paper.workloads[1].id
    paper.trouble(Trouble(path=f".*/{second}/suspend", answer=503, times=99))
    with pytest.raises(LlmbError) as caught:
        paper_site.cluster().cancel(runs)
    assert caught.value.value == tuple(run.id for run in runs[1:])
    assert caught.value.message.count("503") == 1
    assert runs[1].id not in (caught.value.hint or "")  # trying again at once would fail too


def test_phases_become_states(paper_site: Site, paper: ControlPlane) -> None:
    paper.phases = ("Pending", "Initializing", "Running", "Degraded", "Running", "Completed")
    run = paper_site.submit()
    cluster = paper_site.cluster()
    seen = [cluster.poll([run])[run.id].state for _ in range(6)]
    assert seen == ["PENDING", "CONFIGURING", "RUNNING", "RUNNING", "RUNNING", "COMPLETED"]


def test_a_deleted_workload_is_cancelled_and_a_forgotten_one_is_lost_after_a_while(
    paper_site: Site, paper: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted, gone = paper_site.submit(), paper_site.submit()
    paper.delete(paper.workloads[0])
    paper.forget(paper.workloads[1])
    assert (state(paper_site, deleted).state, state(paper_site, gone).state) == (
        "CANCELLED",
        "UNKNOWN",
    )
    assert state(paper_site, gone).state == "UNKNOWN"
    monkeypatch.setattr(module, "YOUNG", 0.0)
    assert state(paper_site, gone).state == LOST


def test_kubernetes_says_why_a_pod_does_not_begin(
    paper_site: Site, paper: ControlPlane, wording: Callable[..., None]
) -> None:
    paper.phases = ("Initializing",)
    run = paper_site.submit()
    warning = {"type": "Warning", "reason": "ErrImagePull", "message": "no such image"}
    paper.workloads[0].events = [{"type": "Normal", "message": "x"}, warning]
    found = state(paper_site, run)
    assert found.reason.split(": ") == [warning["reason"], warning["message"]]
    wording("jobs show", found.fix)
    paper.trouble(Trouble(path=".*/events", answer=500))
    assert state(paper_site, run).reason == ""


def test_the_nodes_are_those_of_the_pods(paper_site: Site, paper: ControlPlane) -> None:
    paper.phases = ("Running",)
    runs = [paper_site.submit(nodes=nodes) for nodes in (1, 3, 2)]
    for run in runs[:2]:
        (run.place / "scheduler_id").write_text("job\npod job-master-0\nstarted 1\n")
    states = paper_site.cluster().poll(runs)
    # the last has not started
    assert [states[run.id].nodes for run in runs] == ["node-1", "node-[1-3]", ""]
    assert nodes_of(runs[1], states[runs[1].id]) == ("node-1", "node-2", "node-3")
    assert nodes_of(runs[1]) == ()  # the name of a pod is no node
    for run in runs:
        store.save_state(run, states[run.id])
    paper.trouble(Trouble(path=".*/pods", answer=500, times=9))
    assert (
        store.save_state(runs[1], paper_site.cluster().poll(runs)[runs[1].id]).nodes == "node-[1-3]"
    )


def test_cancelled_runs_are_stopped_and_stay_known(paper_site: Site, paper: ControlPlane) -> None:
    runs = [paper_site.submit(nodes=nodes) for nodes in (1, 2)]
    cluster = paper_site.cluster()
    cluster.cancel([runs[0], replace(runs[1], scheduler_id=None)])
    assert [workload.phase for workload in paper.workloads] == ["Stopped"] * 2
    assert {state.state for state in cluster.poll(runs).values()} == {"CANCELLED"}
    paper.forget(paper.workloads[0])
    cluster.cancel(runs)  # gone is as good as ended


def faults(site: Site, *launches: Launch, **environ: str) -> list[Fault]:
    found: list[Fault] = site.cluster(**environ).preflight(launches or [site.launch()])
    return found


def test_preflight_finds_no_fault(paper_site: Site) -> None:
    assert faults(paper_site) == []


def test_everything_that_prevents_a_run_is_reported_at_once(
    paper: ControlPlane, site_at: Callable[..., Site], tmp_path: Path, wording: Callable[..., None]
) -> None:
    site = site_at(
        paper,
        runai={"project": "mine"},
        experiments_root=str(tmp_path / "elsewhere"),
        pass_environment=["OTHER_TOKEN"],
    )
    launch = site.launch(
        image=None,
        secrets=("HF_TOKEN",),
        inputs=("/nowhere/*.bin",),
        mounts=("/data:/data",),
        venv="/opt/venv",
    )
    found = faults(site, launch)
    assert sorted((fault.code, fault.key or fault.value) for fault in found) == [
        ("folder-not-on-volume", str(tmp_path / "elsewhere")),
        ("image-not-set", "job"),
        ("input-missing", "/nowhere/*.bin"),
        ("mount-not-on-volume", "/data:/data"),
        ("project-unknown", "runai.project"),
        ("secret-missing", "HF_TOKEN"),
        ("secret-missing", "OTHER_TOKEN"),
        ("venv-missing", "/opt/venv"),
        ("venv-not-on-volume", "/opt/venv"),
    ]
    wording("submit-all", describe(PreflightError(found)))


def test_a_volume_that_is_not_mounted_here(
    paper: ControlPlane, site_at: Callable[..., Site]
) -> None:
    pvc = {"name": "work", "path": "/workspace", "claim": "c", "local": "/no/such/folder"}
    site = site_at(paper, runai={"pvc": pvc})
    found = {fault.code: fault.value for fault in faults(site)}
    assert found["volume-not-mounted"] == "/no/such/folder"
    assert found["folder-not-on-volume"] == str(site.cluster().config.llmb_install)


def test_a_dry_run_sees_what_no_api_need_be_asked_for(
    paper: ControlPlane, site_at: Callable[..., Site]
) -> None:
    site = site_at(paper, runai={"project": "mine"})
    asked = len(paper.requests)
    launch = site.launch(image=None, secrets=("HF_TOKEN",), mounts=("/data:/data",))
    seen = site.cluster().faults_here([launch])
    assert [fault.code for fault in seen] == ["image-not-set", "mount-not-on-volume"]
    assert len(paper.requests) == asked
    assert {fault.code for fault in faults(site, launch)} > {fault.code for fault in seen}


def test_an_image_is_no_file(paper_site: Site) -> None:
    (fault,) = faults(paper_site, paper_site.launch(image="/images/nemo.sqsh"))
    assert (fault.code, fault.value) == ("image-is-file", "/images/nemo.sqsh")


def test_what_lies_on_the_volume_needs_no_mount(paper_site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "volume" / "data"
    assert faults(paper_site, paper_site.launch(mounts=(f"{folder}:{folder}:ro",))) == []


@pytest.mark.parametrize(
    "environ", [{"APP_SECRET": ""}, {"APP_SECRET": "wrong"}], ids=["missing", "wrong"]
)
def test_credentials_are_checked(
    paper_site: Site, environ: dict[str, str], wording: Callable[..., None]
) -> None:
    (fault,) = faults(paper_site, **environ)
    wording("submit-all", describe(PreflightError([fault])))


def test_a_project_on_several_clusters_must_be_chosen(
    paper: ControlPlane, site_at: Callable[..., Site], wording: Callable[..., None]
) -> None:
    paper.clusters.append(RunaiCluster(uuid="c2", name="cluster-two"))
    paper.projects = [
        *(
            RunaiProject(id=str(number), name=f"benchmarks{number}", cluster="c1")
            for number in range(60)
        ),
        RunaiProject(id="4500001", name="benchmarks", cluster="c1"),
        RunaiProject(id="4500002", name="benchmarks", cluster="c2"),
    ]
    site = site_at(paper)
    found = faults(site)
    assert [(fault.code, fault.key) for fault in found] == [("project-ambiguous", "runai.cluster")]
    wording("submit-all", describe(PreflightError(found)))
    config = site.install / "cluster_config.yaml"
    text = config.read_text()
    for name, cluster in (("cluster-two", "c2"), ("c1", "c1")):
        config.write_text(
            text.replace("project: benchmarks", f"project: benchmarks\n  cluster: {name}")
        )
        assert site.api().project.cluster == cluster
    config.write_text(text.replace("project: benchmarks", "project: benchmarks\n  cluster: three"))
    wording("submit-all", describe(PreflightError(faults(site))))


def test_a_server_without_an_answer_ends_nothing(paper_site: Site, paper: ControlPlane) -> None:
    run = paper_site.submit()
    record.save(run)
    paper.trouble(Trouble(path="/workloads.*", answer=503, times=99))
    with pytest.raises(LlmbError, match="HTTP 503"):
        paper_site.cluster().poll([run])


@pytest.mark.parametrize(
    "is_done", [True, False], ids=["the gateway broke on the way back", "and on the way there"]
)
def test_a_broken_gateway_is_settled_by_the_name_at_once(
    paper_site: Site, paper: ControlPlane, is_done: bool
) -> None:
    paper.trouble(Trouble(path=CREATE, answer=502, is_done=is_done))
    run = paper_site.submit()
    assert [workload.id for workload in paper.workloads] == [run.scheduler_id]


def test_a_gateway_that_stays_broken_leaves_it_open(paper_site: Site, paper: ControlPlane) -> None:
    paper.trouble(Trouble(path=CREATE, answer=502, times=99))
    with pytest.raises(UnclearError, match="HTTP 502"):
        paper_site.submit()
    assert paper.requests.count(("POST", "/workloads/trainings")) == 3


def test_a_name_that_is_taken_after_a_broken_gateway_is_no_refusal(
    paper_site: Site, paper: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run:ai's list is late: it has the workload, which is why it refuses another of the name, and
    does not show it.
    """
    monkeypatch.setattr(module.RunaiCluster, "find", lambda self, runs: {})
    paper.trouble(Trouble(path=CREATE, answer=502, is_done=True))
    with pytest.raises(UnclearError, match="HTTP 502"):
        paper_site.submit()
    assert 409 in paper.answers
    assert len(paper.workloads) == 1


WAITS = {
    "nodePool": "h100",
    "phaseReason": "OverLimit",
    "reason": "over limit",
    "userMessage": "The limit is reached",
}


# looked at one by one, and as a list, which does not have the messages
@pytest.mark.parametrize("count", [1, 5])
def test_the_scheduler_says_why_a_workload_waits(
    paper_site: Site, paper: ControlPlane, count: int, wording: Callable[..., None]
) -> None:
    runs = [paper_site.submit() for _ in range(count)]
    for workload in paper.workloads:
        workload.waits = [WAITS, {**WAITS, "nodePool": "spare"}]
    found = list(paper_site.cluster().poll(runs).values())
    assert {one.state for one in found} == {"PENDING"}
    explained = [
        one
        for one in found
        if one.reason == "OverLimit: The limit is reached (node pool h100, spare)"
    ]
    assert len(explained) == min(count, 3)
    wording("jobs show", explained[0].fix)


def test_what_the_api_would_refuse_is_reported_before_a_submission(
    paper: ControlPlane, site_at: Callable[..., Site], wording: Callable[..., None]
) -> None:
    spec = {"tyy": True, "ports": [{"container": "8080"}], "imagePullSecrets": [{"name": "My_Key"}]}
    site = site_at(paper, runai={"spec": spec, "annotations": {"a" * 64: "x"}})
    found = faults(site, site.launch(), site.launch(nodes=2, name="other"))
    assert sorted((fault.code, fault.key) for fault in found) == [
        ("field-invalid", "spec.annotations[0].name"),
        ("field-invalid", "spec.imagePullSecrets[0].name"),
        ("field-invalid", "spec.ports[0].container"),
        ("field-invalid", "spec.tyy"),
    ]
    wording("submit-all", describe(PreflightError(found)))
