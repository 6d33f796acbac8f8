# SPDX-License-Identifier: Apache-2.0
"""The control plane of the tests is itself as the API's documentation has it."""

import sys
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from llmb_testing.runai import ControlPlane, RunaiProject, Trouble

SPEC: Mapping[str, Any] = {
    "command": sys.executable,
    "args": "-c 'pass'",
    "image": "i",
    "restartPolicy": "Never",
}


class Caller:
    """The API by plain requests, with a good token."""

    def __init__(self, plane: ControlPlane) -> None:
        self.http = httpx.Client(base_url=plane.url, trust_env=False, timeout=120)
        weakref.finalize(self, self.http.close)
        grant = {"grantType": "client_credentials", "clientId": "me", "clientSecret": "s3cret"}
        token = self.http.post("/token", json=grant).json()["accessToken"]
        self.http.headers["Authorization"] = f"Bearer {token}"

    def create(self, name: str = "a", *, kind: str = "trainings", **spec: Any) -> httpx.Response:
        head = {"masterSpecSameAsWorker": True} if kind == "distributed" else {}
        body = {
            "name": name,
            "projectId": "4500001",
            "clusterId": "c1",
            "spec": {**SPEC, **spec},
            **head,
        }
        return self.http.post(f"/workloads/{kind}", json=body)

    def get(self, path: str, **params: Any) -> Any:
        answer = self.http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def comes_to(self, workload: str, phase: str) -> dict[str, Any]:
        """Look until the workload is in ``phase``."""
        data: dict[str, Any] = {}

        def is_there() -> bool:
            data.update(self.get(f"/workloads/{workload}"))
            return bool(data["phase"] == phase)

        wait_until(is_there, data)
        return data


def wait_until(condition: Callable[[], bool], reported: object) -> None:
    """Wait for what must come true, however slow the machine; else ``reported`` is shown."""
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, reported
        time.sleep(0.01)


@pytest.fixture
def api(plane: ControlPlane) -> Caller:
    return Caller(plane)


def test_a_workload_goes_through_its_phases_and_its_pod_runs(
    api: Caller, plane: ControlPlane
) -> None:
    answer = api.create(
        args="-c 'import os; print(os.environ[\"TOKEN\"])'",
        environmentVariables=[{"name": "TOKEN", "secret": {"name": "hub", "key": "t"}}],
    )
    assert (answer.status_code, answer.json()["actualPhase"]) == (202, "Creating")
    plane.secrets = {"hub": {"t": "from Kubernetes"}}
    workload = answer.json()["workloadId"]
    seen = [api.get(f"/workloads/{workload}")["phase"] for _ in range(3)]
    assert seen == ["Pending", "Initializing", "Running"]
    assert api.comes_to(workload, "Completed")["requestedPods"] == {"number": 1}
    assert (plane.folder / workload / "a-master-0.log").read_text() == "from Kubernetes\n"


def test_pods_of_a_distributed_workload_know_their_place(api: Caller, plane: ControlPlane) -> None:
    program = "import os; print(*map(os.environ.get, ('RANK', 'WORLD_SIZE', 'MASTER_ADDR')))"
    spec: dict[str, Any] = {
        "args": f'-c "{program}"',
        "numWorkers": 2,
        "distributedFramework": "PyTorch",
    }
    workload = api.create(kind="distributed", **spec).json()["workloadId"]
    api.comes_to(workload, "Completed")
    names = ("a-master-0", "a-worker-0", "a-worker-1")
    (pods,) = [one.pods for one in plane.workloads if one.pods is not None]
    for process in pods.processes:
        process.wait()
    printed = [(plane.folder / workload / f"{name}.log").read_text() for name in names]
    assert printed == [f"{rank} 3 127.0.0.1\n" for rank in range(3)]


def test_a_pod_that_fails_is_started_again_unless_configured_otherwise(
    api: Caller, plane: ControlPlane
) -> None:
    fails = {"args": "-c 'raise SystemExit(3)'"}
    never = api.create("never", **fails).json()["workloadId"]
    again = api.create("again", **fails, restartPolicy="OnFailure", backoffLimit=2).json()[
        "workloadId"
    ]
    api.comes_to(never, "Failed")
    api.comes_to(again, "Failed")
    assert [workload.restarts for workload in plane.workloads] == [0, 2]


def test_workloads_wait_for_gpus(api: Caller, plane: ControlPlane) -> None:
    plane.gpus = 8
    sleeps: dict[str, Any] = {
        "args": "-c 'import time; time.sleep(600)'",
        "compute": {"gpuDevicesRequest": 8},
    }
    first, second = (api.create(name, **sleeps).json()["workloadId"] for name in ("a", "b"))
    api.comes_to(first, "Running")
    assert "Unschedulable" in api.get(f"/workloads/{second}")["phaseMessage"]
    assert api.http.post(f"/workloads/trainings/{first}/suspend").status_code == 202
    api.comes_to(first, "Stopped")
    api.comes_to(second, "Running")


@pytest.mark.parametrize(
    ("spec", "detail"),
    [
        ({"nodes": 2}, "spec.nodes is not a field"),
        ({"numWorkers": 1}, "spec.numWorkers is not a field"),  # of a training
        ({"image": None}, "spec.image is missing"),
        ({"backoffLimit": "0"}, "spec.backoffLimit must be a whole number"),
        ({"restartPolicy": "no"}, "spec.restartPolicy must be one of"),
        ({"compute": {"gpus": 8}}, "spec.compute.gpus is not a field"),
        ({"environmentVariables": [{"name": "A"}]}, "needs one value"),
        ({"storage": {"pvc": [{"claim": "c"}]}}, "spec.storage.pvc[0].claim is not a field"),
    ],
)
def test_a_body_that_is_not_documented_is_refused(
    api: Caller, spec: dict[str, Any], detail: str
) -> None:
    answer = api.create(**spec)
    assert answer.status_code == 400
    assert detail in answer.json()["details"]


def test_requests_that_are_not_documented_are_refused(api: Caller, plane: ControlPlane) -> None:
    assert api.create("No_Name").status_code == 400
    assert (
        api.create(kind="distributed", numWorkers=0, distributedFramework="PyTorch").status_code
        == 400
    )
    assert api.create(kind="workspaces").status_code == 404
    assert api.http.get("/workloads", params={"page": 2}).status_code == 400
    assert api.http.get("/workloads", params={"limit": 501}).status_code == 400
    assert api.http.get("/workloads", params={"filterBy": "colour==red"}).status_code == 400
    assert api.http.get("/elsewhere").status_code == 404
    assert api.http.get(f"/workloads/{uuid.uuid4()}").status_code == 404
    for path in ("gone", "gone/events", "gone/pods"):
        assert api.http.get(f"/workloads/{path}").status_code == 400  # not the id of a workload
    assert api.http.post("/workloads/trainings/gone/suspend").status_code == 400
    assert api.http.get("/workloads/x/suspend").status_code == 404  # it is a POST
    assert plane.workloads == []


def test_lists_come_in_pages_of_fifty(paper: ControlPlane) -> None:
    api = Caller(paper)
    paper.projects = [
        RunaiProject(id=str(number), name=f"p{number}", cluster="c1") for number in range(120)
    ]
    first = api.get("/org-unit/projects")
    assert (len(first["projects"]), first["next"]) == (50, 50)
    last = api.get("/org-unit/projects", offset=100)
    assert (len(last["projects"]), "next" in last) == (20, False)
    (found,) = api.get("/org-unit/projects", filterBy="name==p77")["projects"]
    assert found["id"] == "77"


def test_names_are_unique_and_the_deleted_are_listed_apart(paper: ControlPlane) -> None:
    api = Caller(paper)
    workload = api.create().json()["workloadId"]
    assert api.create().status_code == 409
    assert api.http.delete(f"/workloads/trainings/{workload}").status_code == 202
    assert api.http.get(f"/workloads/{workload}").status_code == 404
    assert api.get("/workloads")["workloads"] == []
    assert [one["id"] for one in api.get("/workloads", deleted="true")["workloads"]] == [workload]
    assert api.create().status_code == 202


def test_tokens_end(plane: ControlPlane, api: Caller) -> None:
    api.get("/clusters")
    plane.clock = lambda: 1e12
    assert api.http.get("/clusters").status_code == 401
    first = {"grantType": "client_credentials", "clientId": "me"}
    assert api.http.post("/token", json={**first, "clientSecret": "no"}).status_code == 401
    assert (
        api.http.post("/token", json={**first, "clientSecret": "s3cret", "x": 1}).status_code == 400
    )
    second = {"grant_type": "client_credentials", "client_id": "me", "client_secret": "s3cret"}
    for body, status, error in (
        (second, 200, None),
        ({**second, "client_secret": "no"}, 401, "invalid_client"),
        ({**second, "grant_type": "app_token"}, 400, "unsupported_grant_type"),
        ({**second, "x": "1"}, 400, "invalid_request"),
    ):
        answer = api.http.post(f"{plane.url.removesuffix('v1')}v2/token", data=body)
        assert (answer.status_code, answer.json().get("error")) == (status, error)
    # it takes a form
    assert api.http.post(f"{plane.url.removesuffix('v1')}v2/token", json=second).status_code == 400


def test_troubles_come_as_often_as_they_are_asked_for(paper: ControlPlane) -> None:
    api = Caller(paper)
    paper.trouble(
        Trouble(path="/clusters", answer=429, headers={"Retry-After": "3"}, times=2),
        Trouble(answer="lost"),
    )
    answers = [api.http.get("/clusters") for _ in range(2)]
    assert [(one.status_code, one.headers["Retry-After"]) for one in answers] == [(429, "3")] * 2
    with pytest.raises(httpx.RemoteProtocolError):
        api.create()
    assert len(paper.workloads) == 1  # it was done, and the answer was lost
    paper.trouble(Trouble(answer="cut"))
    with pytest.raises(httpx.RemoteProtocolError):
        api.create("b")
    assert len(paper.workloads) == 1


def test_evicted_pods_start_again(api: Caller, plane: ControlPlane, tmp_path: Path) -> None:
    program = f"import time; open('{tmp_path}/starts', 'a').write('x'); time.sleep(600)"
    workload = api.create(args=f'-c "{program}"').json()["workloadId"]
    api.comes_to(workload, "Running")
    plane.evict(plane.named("a"))
    assert api.get(f"/workloads/{workload}")["phase"] == "Initializing"
    api.comes_to(workload, "Running")


def test_evicted_pods_end_with_all_that_they_started(
    api: Caller, plane: ControlPlane, tmp_path: Path
) -> None:
    """Also with what has left their group and session, as torchrun's ranks do."""
    note = tmp_path / "pid"
    start = "below = subprocess.Popen(['sleep', '600'], start_new_session=True)"
    tell = f"open('{note}', 'w').write(str(below.pid))"
    api.create(args=f'-c "import subprocess, time; {start}; {tell}; time.sleep(600)"')

    def has_begun() -> bool:
        plane.step()
        return note.exists() and note.read_text() != ""

    wait_until(has_begun, plane.workloads)
    below = psutil.Process(int(note.read_text()))
    plane.evict(plane.named("a"))
    wait_until(lambda: not is_alive(below), below)


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
