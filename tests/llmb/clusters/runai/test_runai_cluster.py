# SPDX-License-Identifier: Apache-2.0
"""The cluster's own methods on a control plane without pods: submit, find, poll, cancel, and what stands in the way."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.clusters.base import UnclearError
from llmb.clusters.runai import runai_cluster as module
from llmb.errors import Fault, LlmbError
from llmb.runs import record
from llmb.runs.launch import Launch
from llmb.runs.record import RunRecord
from llmb.runs.state import LOST, JobState
from llmb_testing.runai import Cluster, ControlPlane, Project, Trouble

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


def test_an_answer_that_was_lost_is_unclear_and_the_run_is_found(paper_site: Site, paper: ControlPlane) -> None:
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


def test_a_storm_of_429_and_503_ends_in_each_run_once(paper_site: Site, paper: ControlPlane) -> None:
    cluster = paper_site.cluster()
    paper.trouble(*(Trouble(path=CREATE, answer=status, times=2) for status in (429, 503)))
    for _ in range(5):
        cluster.submit(paper_site.record(paper_site.launch()))
    assert len(paper.workloads) == 5


def test_a_policy_refuses_and_says_why(paper_site: Site, paper: ControlPlane) -> None:
    paper.issues = lambda body: [{"field": "spec.image", "details": "from our registry only"}]
    with pytest.raises(LlmbError, match=r"spec\.image: from our registry only"):
        paper_site.submit()
    assert paper.workloads == []


@pytest.mark.parametrize("count", [2, 5])  # by name each, and as a list
def test_runs_are_found_by_their_names_and_also_the_deleted(paper_site: Site, paper: ControlPlane, count: int) -> None:
    runs = [paper_site.submit() for _ in range(count)]
    stranger = paper_site.record(paper_site.launch())
    paper.delete(paper.workloads[0])
    found = paper_site.cluster().find([*(replace(run, scheduler_id=None) for run in runs), stranger])
    assert found == {run.id: run.scheduler_id for run in runs}


def test_runs_are_found_on_later_pages(paper_site: Site, paper: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmb.clusters.runai.rest.PAGE", 3)
    runs = [paper_site.submit() for _ in range(11)]
    cluster = paper_site.cluster()
    assert cluster.find(runs) == {run.id: run.scheduler_id for run in runs}
    before = len(paper.requests)
    assert {state.state for state in cluster.poll(runs).values()} == {"PENDING"}
    asked = paper.requests[before:]
    assert asked.count(("GET", "/workloads")) == 4  # pages, however many runs
    assert len(asked) == 4 + 3  # why the first three wait


def test_an_api_that_cannot_filter_by_project_lists_all(paper_site: Site, paper: ControlPlane) -> None:
    runs = [paper_site.submit() for _ in range(4)]
    other = Project(id="9", name="other", cluster="c1")
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
    assert (state(paper_site, deleted).state, state(paper_site, gone).state) == ("CANCELLED", "UNKNOWN")
    assert state(paper_site, gone).reason == "Run:ai does not list its workload yet"
    monkeypatch.setattr(module, "YOUNG", 0.0)
    assert state(paper_site, gone).state == LOST


def test_kubernetes_says_why_a_pod_does_not_begin(paper_site: Site, paper: ControlPlane) -> None:
    paper.phases = ("Initializing",)
    run = paper_site.submit()
    said = {"type": "Warning", "reason": "ErrImagePull", "message": "no such image"}
    paper.workloads[0].events = [{"type": "Normal", "message": "x"}, said]
    found = state(paper_site, run)
    assert found.reason == "ErrImagePull: no such image"
    assert found.fix.startswith("its image cannot be pulled: check its name")
    paper.trouble(Trouble(path=".*/events", answer=500))
    assert state(paper_site, run).reason == ""


def test_cancelled_runs_are_stopped_and_stay_known(paper_site: Site, paper: ControlPlane) -> None:
    runs = [paper_site.submit(nodes=nodes) for nodes in (1, 2)]
    cluster = paper_site.cluster()
    cluster.cancel([runs[0], replace(runs[1], scheduler_id=None)])
    assert [workload.phase for workload in paper.workloads] == ["Stopped"] * 2
    assert {state.state for state in cluster.poll(runs).values()} == {"CANCELLED"}
    paper.forget(paper.workloads[0])
    cluster.cancel(runs)  # gone is as good as ended


def faults(site: Site, *launches: Launch, **environ: str) -> dict[str, str]:
    """What stands in the way, each message with its hint."""
    found: list[Fault] = site.cluster(**environ).preflight(launches or [site.launch()])
    return {fault.message: fault.hint or "" for fault in found}


def test_nothing_stands_in_the_way(paper_site: Site) -> None:
    assert faults(paper_site) == {}


def test_everything_that_stands_in_the_way_is_told_at_once(
    paper: ControlPlane, site_at: Callable[..., Site], tmp_path: Path
) -> None:
    site = site_at(
        paper, runai={"project": "mine"}, experiments_root=str(tmp_path / "elsewhere"), pass_environment=["OTHER_TOKEN"]
    )
    launch = site.launch(
        image=None, secrets=("HF_TOKEN",), inputs=("/nowhere/*.bin",), mounts=("/data:/data",), venv="/opt/venv"
    )
    found = faults(site, launch)
    for said in (
        "job has no image",
        "job reads /nowhere/*.bin, and no such file is there",
        "job needs HF_TOKEN, and runai.secrets does not say where pods get it",
        "pass_environment needs OTHER_TOKEN, and runai.secrets does not say where pods get it",
        "/data:/data cannot be mounted: pods see the volume work alone, at " + str(tmp_path / "volume"),
        f"the environment /opt/venv is not on the volume {tmp_path / 'volume'}",
        f"experiments_root {tmp_path / 'elsewhere'} is not on the volume {tmp_path / 'volume'}, "
        "and pods see nothing else",
        "this access key sees no project 'mine' in Run:ai",
    ):
        assert said in found
    assert "secrets: {HF_TOKEN: {name: NAME, key: KEY}}" in next(h for m, h in found.items() if "HF_TOKEN" in m)


def test_a_volume_that_is_not_mounted_here(paper: ControlPlane, site_at: Callable[..., Site]) -> None:
    pvc = {"name": "work", "path": "/workspace", "claim": "c", "local": "/no/such/folder"}
    found = faults(site_at(paper, runai={"pvc": pvc}))
    assert found["the volume work is not mounted here: there is no folder /no/such/folder"]


def test_an_image_is_no_file(paper_site: Site) -> None:
    (said,) = faults(paper_site, paper_site.launch(image="/images/nemo.sqsh"))
    assert said == "/images/nemo.sqsh is a file, and Run:ai pulls images from a registry"


def test_what_lies_on_the_volume_needs_no_mount(paper_site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "volume" / "data"
    assert faults(paper_site, paper_site.launch(mounts=(f"{folder}:{folder}:ro",))) == {}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"APP_SECRET": ""}, "APP_SECRET is not set"),
        (
            {"APP_SECRET": "wrong"},
            "Run:ai does not sign in 'me' with this secret: invalid client credentials (HTTP 401)",
        ),
    ],
)
def test_credentials_are_looked_at(paper_site: Site, environ: dict[str, str], said: str) -> None:
    assert list(faults(paper_site, **environ)) == [said]


def test_a_project_on_several_clusters_must_be_chosen(paper: ControlPlane, site_at: Callable[..., Site]) -> None:
    paper.clusters.append(Cluster(uuid="c2", name="cluster-two"))
    paper.projects = [
        *(Project(id=str(number), name=f"benchmarks{number}", cluster="c1") for number in range(60)),
        Project(id="4500001", name="benchmarks", cluster="c1"),
        Project(id="4500002", name="benchmarks", cluster="c2"),
    ]
    site = site_at(paper)
    (message,), (hint,) = zip(*faults(site).items(), strict=True)
    assert message == "project 'benchmarks' of Run:ai is on several clusters: cluster-one, cluster-two"
    assert "runai.cluster" in hint
    config = site.install / "cluster_config.yaml"
    text = config.read_text()
    for name, cluster in (("cluster-two", "c2"), ("c1", "c1")):
        config.write_text(text.replace("project: benchmarks", f"project: benchmarks\n  cluster: {name}"))
        assert site.api().project.cluster == cluster
    config.write_text(text.replace("project: benchmarks", "project: benchmarks\n  cluster: three"))
    assert list(faults(site)) == [
        "project 'benchmarks' of Run:ai is on cluster-one, cluster-two, not on cluster 'three'"
    ]


def test_a_server_without_an_answer_ends_nothing(paper_site: Site, paper: ControlPlane) -> None:
    run = paper_site.submit()
    record.save(run)
    paper.trouble(Trouble(path="/workloads.*", answer=503, times=99))
    with pytest.raises(LlmbError, match="HTTP 503"):
        paper_site.cluster().poll([run])


@pytest.mark.parametrize("is_done", [True, False], ids=["the gateway broke on the way back", "and on the way there"])
def test_a_broken_gateway_is_settled_by_the_name_at_once(paper_site: Site, paper: ControlPlane, is_done: bool) -> None:
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
    """Run:ai's list is late: it has the workload, which is why it refuses another of the name, and does not show it."""
    monkeypatch.setattr(module.RunaiCluster, "find", lambda self, runs: {})
    paper.trouble(Trouble(path=CREATE, answer=502, is_done=True))
    with pytest.raises(UnclearError, match="HTTP 502"):
        paper_site.submit()
    assert 409 in paper.answers
    assert len(paper.workloads) == 1


WAITS = {"nodePool": "h100", "phaseReason": "OverLimit", "reason": "over limit", "userMessage": "The limit is reached"}


@pytest.mark.parametrize("count", [1, 5])  # looked at one by one, and as a list, which does not have the messages
def test_the_scheduler_says_why_a_workload_waits(paper_site: Site, paper: ControlPlane, count: int) -> None:
    runs = [paper_site.submit() for _ in range(count)]
    for workload in paper.workloads:
        workload.waits = [WAITS, {**WAITS, "nodePool": "spare"}]
    found = list(paper_site.cluster().poll(runs).values())
    assert {one.state for one in found} == {"PENDING"}
    said = [one for one in found if one.reason == "OverLimit: The limit is reached (node pool h100, spare)"]
    assert len(said) == min(count, 3)
    assert said[0].fix.startswith("the project's quota of GPUs is used up")


def test_what_the_api_would_refuse_is_told_before_a_submission(
    paper: ControlPlane, site_at: Callable[..., Site]
) -> None:
    spec = {"tyy": True, "ports": [{"container": "8080"}], "imagePullSecrets": [{"name": "My_Key"}]}
    site = site_at(paper, runai={"spec": spec, "annotations": {"a" * 64: "x"}})
    found = faults(site, site.launch(), site.launch(nodes=2, name="other"))
    assert sorted(message.removeprefix("the request to Run:ai: spec.") for message in found) == [
        "annotations[0].name must have at most 63 characters",
        "imagePullSecrets[0].name 'My_Key' must match ^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        "ports[0].container must be a whole number",
        "tyy is not a field of Run:ai's API",
    ]
    assert found["the request to Run:ai: spec.tyy is not a field of Run:ai's API"].startswith("did you mean 'tty'?")
