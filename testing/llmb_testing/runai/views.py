# SPDX-License-Identifier: Apache-2.0
"""Workloads, events, clusters and projects as the API shows them: every field that it always has."""

from collections.abc import Mapping
from typing import Any

from llmb_testing.runai.workload import Cluster, Project, Workload, now, pods_of

_TENANT, _DEPARTMENT = 1001, "2"


def listed(workload: Workload) -> dict[str, Any]:
    """A workload in a list."""
    running = workload.pods.codes().count(None) if workload.pods is not None else 0
    project = workload.project
    return {
        "id": workload.id,
        "name": workload.name,
        "type": "Distributed" if workload.kind == "distributed" else "Training",
        "category": "Train",
        "tenantId": _TENANT,
        "clusterId": project.cluster,
        "projectId": project.id,
        "projectName": project.name,
        "departmentId": _DEPARTMENT,
        "departmentName": "default",
        "namespace": f"runai-{project.name}",
        "source": "Control-plane",
        "priority": None,
        "priorityClassName": "train",
        "phase": workload.phase,
        "phaseMessage": workload.message,
        "phaseUpdatedAt": workload.changed,
        "k8sPhase": workload.phase,
        "k8sPhaseUpdatedAt": workload.changed,
        "conditions": [],
        "createdAt": workload.created,
        "updatedAt": workload.changed,
        "completedAt": workload.completed,
        "deletedAt": workload.deleted,
        "requestedPods": {"number": pods_of(workload.kind, workload.body)},
        "runningPods": running,
        **({"phaseReason": workload.reason} if workload.reason else {}),
    }


def detailed(workload: Workload) -> dict[str, Any]:
    """A workload on its own: a list does not say why the scheduler lets it wait."""
    return {**listed(workload), "pendingSchedulingMessages": workload.waits if workload.phase == "Pending" else []}


def created(workload: Workload, requested: str) -> dict[str, Any]:
    """The answer to the request that made a workload, which asked for the name ``requested``."""
    of_spec = ("spec", "masterSpecSameAsWorker", "masterSpec")
    return {
        "workloadId": workload.id,
        "name": workload.name,
        "requestedName": requested,
        "projectId": workload.project.id,
        "departmentId": _DEPARTMENT,
        "clusterId": workload.project.cluster,
        "createdBy": "me",
        "createdAt": workload.created,
        "deletedAt": None,
        "desiredPhase": "Running",
        "actualPhase": workload.phase,
        **{name: workload.body[name] for name in of_spec if name in workload.body},
    }


def event(workload: Workload, own: Mapping[str, Any]) -> dict[str, Any]:
    """An event of a workload, of which a test may say no more than what it is about."""
    usual = {"createdAt": workload.changed, "clusterId": workload.project.cluster, "type": "Normal", "message": ""}
    return {**usual, **own}


def cluster(one: Cluster) -> dict[str, Any]:
    """A cluster in the list of all."""
    return {"uuid": one.uuid, "name": one.name, "tenantId": _TENANT, "createdAt": now(), "version": "2.24.0"}


def project(one: Project) -> dict[str, Any]:
    """A project in a list."""
    return {"id": one.id, "name": one.name, "clusterId": one.cluster, "status": {"namespace": f"runai-{one.name}"}}
