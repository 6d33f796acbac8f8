# SPDX-License-Identifier: Apache-2.0
"""Requests and answers against the models of the official Python client (runapy), which are
generated from the API.

The models ignore fields that they do not know: ``strange`` looks for those.
"""

import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import pydantic
import pytest
import yaml

from llmb.contract.record import RunRecord
from llmb.errors import LlmbError
from llmb_runai.runai_checks import REQUESTS
from llmb_testing.runai import ControlPlane, RunaiCluster, RunaiProject, server
from llmb_testing.runai.routes import answer_to, sign_in
from llmb_testing.runai.views import ViewAnswer

Site = Any  # the class is in conftest.py


@dataclass(frozen=True)
class Exchange:
    """A request that the control plane has understood, and its answer."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    answer: Any
    status: int


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> list[Exchange]:
    """Everything that goes through the control plane."""
    found: list[Exchange] = []

    def answered(
        plane: ControlPlane, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> ViewAnswer:
        answer = answer_to(plane, method, path, query, body)
        found.append(
            Exchange(method, path, query, body, json.loads(json.dumps(answer.data)), answer.status)
        )
        return answer

    def signed_in(
        plane: ControlPlane, version: int, content: bytes, content_type: str
    ) -> ViewAnswer:
        answer = sign_in(plane, version, content, content_type)
        body = json.loads(content) if version == 1 else dict(parse_qsl(content.decode()))
        found.append(Exchange("POST", f"/v{version}/token", {}, body, answer.data, answer.status))
        return answer

    monkeypatch.setattr(server, "answer_to", answered)
    monkeypatch.setattr(server, "sign_in", signed_in)
    return found


def strange(model: Any, data: Any, path: str = "") -> list[str]:
    """The fields of ``data`` that the model does not have, nested ones included."""
    if isinstance(data, list):
        return [fault for one in data for fault in strange(model, one, f"{path}[]")]
    if not (
        inspect.isclass(model) and issubclass(model, pydantic.BaseModel) and isinstance(data, dict)
    ):
        return []
    known = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    found = [f"{path}.{name}" for name in data if name not in known]
    return found + [
        fault
        for name, value in data.items()
        if name in known
        for fault in strange(model_in(known[name]), value, f"{path}.{name}")
    ]


def model_in(annotation: Any) -> Any:
    """The model that a type mentions, within lists and options too."""
    parts = [model_in(one) for one in typing.get_args(annotation)]
    return next(
        (one for one in parts if one is not None),
        annotation if inspect.isclass(annotation) else None,
    )


def check(model: Any, data: Any) -> None:
    """``data`` is what the model describes: nothing unknown, missing or mistyped."""
    assert strange(model, data) == []
    model.model_validate(data)


ANSWERS = {
    ("GET", r"/workloads"): "GetWorkloads200Response",
    ("GET", r"/workloads/[^/]+"): "WorkloadDetailed",
    ("GET", r"/workloads/[^/]+/events"): "GetWorkloadEvents200Response",
    ("GET", r"/workloads/[^/]+/pods"): "ListPods200Response",
    ("POST", r"/workloads/trainings"): "Training1",
    ("POST", r"/workloads/distributed"): "DistributedWorkload",
    ("POST", r"/v1/token"): "TokenResponse",
    ("POST", r"/v2/token"): "OAuth2TokenResponse",
}
BODIES = {
    ("POST", "/workloads/trainings"): REQUESTS["trainings"],
    ("POST", "/workloads/distributed"): REQUESTS["distributed"],
    ("POST", "/v1/token"): "TokenRequest",
}
# The client's list of projects has the model of their metrics, by a clash of names: it says nothing
# of ours.
NO_MODEL = [("GET", "/org-unit/projects"), ("POST", r"/workloads/[^/]+/[^/]+/suspend")]


def check_all(models: Any, exchanges: list[Exchange]) -> set[str]:
    """Compare all exchanges with the models; the names of the models that were used."""
    used = set[str]()
    for one in exchanges:
        if (name := BODIES.get((one.method, one.path))) is not None:
            check(getattr(models, name), one.body)
            used.add(name)
        if one.status >= 400:
            name = "OAuth2Error" if one.path == "/v2/token" else "SubmissionError"
        elif one.path == "/clusters":
            for cluster in one.answer:
                check(models.DisplayedCluster, cluster)
            used.add("DisplayedCluster")
            continue
        elif any(
            one.method == method and re.fullmatch(path, one.path) for method, path in NO_MODEL
        ):
            continue
        else:
            name = next(
                own
                for (method, path), own in ANSWERS.items()
                if method == one.method and re.fullmatch(path, one.path)
            )
        check(getattr(models, name), one.answer)
        used.add(name)
    return used


# One of everything that a user may want: each field is documented, and llmb uses none of them
# itself.
WANTED = """\
tty: true
stdin: true
createHomeDir: true
category: Train
priorityClass: high
preemptibility: non-preemptible
nodeType: dgx
terminationGracePeriodSeconds: 120
workingDir: /workspace
imagePullSecrets: [{name: registry-credential, userCredential: false}]
labels: [{name: team, value: llm}]
annotations: [{name: k8s.v1.cni.cncf.io/networks, value: ib0}]
ports: [{container: 8080, serviceType: NodePort, external: 30080, name: metrics}]
exposedUrls: [{container: 6006, toolType: tensorboard, toolName: board, authorizationType: authenticatedUsers}]
relatedUrls: [{url: 'https://grafana.example.org', name: dashboard}]
probes:
  readiness: {initialDelaySeconds: 5, periodSeconds: 10, handler: {httpGet: {path: /healthz, port: 8080, scheme: HTTP}}}
nodeAffinityRequired:
  nodeSelectorTerms: [{matchExpressions: [{key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-H100]}]}]
podAffinity: {type: Preferred, key: topology.kubernetes.io/zone}
tolerations: [{name: gpus, operator: Equal, key: nvidia.com/gpu, value: present, effect: NoSchedule}]
security:
  {uidGidSource: custom, runAsUid: 1000, runAsGid: 1000, runAsNonRoot: true, capabilities: [IPC_LOCK],
   supplementalGroups: '1001,1002', seccompProfileType: RuntimeDefault, hostIpc: false}
compute:
  {cpuCoreRequest: 96.5, cpuCoreLimit: 128, cpuMemoryRequest: 1T,
   extendedResources: [{resource: rdma/ib, quantity: '8'}]}
storage:
  dataVolume: [{id: 3f5c, mountPath: /data}]
  nfs: [{name: home, server: nfs.example.org, path: /export, mountPath: /home, readOnly: true}]
  hostPath: [{name: nvme, path: /raid, mountPath: /raid, mountPropagation: HostToContainer}]
  emptyDirVolume: [{name: scratch, path: /scratch, medium: Memory, sizeLimit: 100Gi}]
  configMapVolume: [{configMap: topology, mountPath: /etc/topology, defaultMode: '0444'}]
  secretVolume: [{secret: keys, mountPath: /etc/keys}]
  git: [{repository: 'https://git.example.org/x', branch: main, path: /src}]
  s3: [{bucket: b, path: /s3, url: 'https://s3.example.org', accessKeySecret: s3-key}]
  pvc: [{existingPvc: true, claimName: datasets, path: /datasets, readOnly: true}]
environmentVariables:
  - {name: SITE, value: x}
  - {name: NODE, podFieldRef: {path: spec.nodeName}}
  - {name: CONFIG, configMap: {name: settings, key: level}}
  - {name: LOGIN, userCredential: {name: mine, key: user}}
"""


def test_the_fields_that_users_want_arrive(
    paper: ControlPlane, site_at: Callable[..., Site], models: Any, exchanges: list[Exchange]
) -> None:
    """From the configuration to Run:ai, on one node and on several, by the models' word and the
    control plane's.
    """
    wanted = yaml.safe_load(WANTED)
    runai = {"spec": wanted, "extended_resources": {"rdma/roce": 1}, "annotations": {"net": "a"}}
    site = site_at(paper, runai=runai)
    assert site.cluster().preflight([site.launch(), site.launch(nodes=2)]) == []
    for nodes in (1, 2):
        site.submit(nodes=nodes)
    check_all(models, exchanges)
    for workload in paper.workloads:
        spec = workload.body["spec"]
        assert {name for name in wanted if name not in spec} == set()
        for name, volumes in wanted["storage"].items():
            assert spec["storage"][name][-1:] == volumes
        assert [one["claimName"] for one in spec["storage"]["pvc"]] == ["work-claim", "datasets"]
        assert [one["resource"] for one in spec["compute"]["extendedResources"]] == [
            "rdma/roce",
            "rdma/ib",
        ]
        assert [one["name"] for one in spec["annotations"]] == [
            "net",
            "k8s.v1.cni.cncf.io/networks",
        ]
        assert [one["name"] for one in spec["environmentVariables"]] == [
            "SITE",
            "NODE",
            "CONFIG",
            "LOGIN",
        ]


def test_every_field_of_a_spec_is_tried(models: Any) -> None:
    """What the last test wants and what llmb sets itself are all that the API documents for one
    node.
    """
    ours = {
        "args",
        "backoffLimit",
        "command",
        "image",
        "imagePullPolicy",
        "nodePools",
        "restartPolicy",
        "completions",
        "parallelism",
        "terminateAfterPreemption",
        "autoDeletionTimeAfterCompletionSeconds",
    }
    fields = {field.alias or name for name, field in models.TrainingSpecSpec.model_fields.items()}
    assert fields == {*ours, *yaml.safe_load(WANTED)}


def test_every_exchange_of_a_run_is_as_documented(
    paper: ControlPlane, site_at: Callable[..., Site], models: Any, exchanges: list[Exchange]
) -> None:
    """Sign in, look up, submit, list, look at one, events, cancel, find what was deleted, be
    refused.
    """
    paper.clusters.append(RunaiCluster(uuid="c2", name="two"))
    paper.projects.append(RunaiProject(id="2", name="benchmarks", cluster="c2"))
    secrets = {"HF_TOKEN": {"name": "hub", "key": "token"}}
    site = site_at(
        paper, runai={"cluster": "cluster-one", "secrets": secrets}, pass_environment=["PROXY"]
    )
    cluster = site.cluster(PROXY="p")
    runs: list[RunRecord] = [
        site.submit(nodes=nodes, secrets=("HF_TOKEN",)) for nodes in (1, 2, 3, 4)
    ]
    paper.phases = ("Initializing", "Completed")
    last: RunRecord = site.submit()
    waits = {
        "nodePool": "a",
        "phaseReason": "OverLimit",
        "reason": "no",
        "orgType": "PROJECT",
        "userMessage": "full",
    }
    paper.workloads[0].waits = [waits]
    (last.place / "scheduler_id").write_text("job\nstarted 1\n")
    paper.workloads[-1].events = [{"type": "Warning", "reason": "ErrImagePull", "message": "no"}]
    for _ in range(3):
        cluster.poll([*runs, last])
    cluster.poll(runs[:1])
    cluster.cancel(runs[:2])
    paper.delete(paper.workloads[2])
    cluster.find(runs)
    paper.token_versions = {1}
    paper.expire_tokens()
    cluster.poll(runs[:1])
    paper.issues = lambda body: [
        {"field": "compute.cpuCoreRequest", "details": "value must be no less than 3"}
    ]
    with pytest.raises(LlmbError):
        site.submit()
    used = check_all(models, [one for one in exchanges if one.status != 404])
    assert used == {*ANSWERS.values(), *BODIES.values(), "DisplayedCluster", "SubmissionError"}


def test_a_refused_sign_in(
    paper: ControlPlane, site_at: Callable[..., Site], models: Any, exchanges: list[Exchange]
) -> None:
    site = site_at(paper)
    with pytest.raises(LlmbError):
        _ = site.cluster(APP_SECRET="wrong").api.project
    assert check_all(models, exchanges) == {"OAuth2Error", "TokenRequest", "SubmissionError"}
