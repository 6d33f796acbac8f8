# SPDX-License-Identifier: Apache-2.0
"""Answers of the API as values: errors, pages of lists, and its objects with every field that the
API always has.
"""

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmb_testing.runai.workload import RunaiCluster, RunaiProject, RunaiWorkload, now, pods_of

_TENANT, _DEPARTMENT = 1001, "2"
DEFAULT_LIMIT, MOST = 50, 500
_FILTER = re.compile(r"(\w+)(==|!=|<=|>=|=@|!@|=\^|=\$)(.*)")
_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "=@": lambda own, text: text in own,
    "!@": lambda own, text: text not in own,
    "=^": str.startswith,
    "=$": str.endswith,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewAnswer:
    """An answer of the API."""

    status: int
    data: Any
    headers: Mapping[str, str] = field(default_factory=dict)


def error(status: int, message: str, **more: Any) -> ViewAnswer:
    """Return an error."""
    return ViewAnswer(status=status, data={"code": status, "message": message, **more})


class BadQueryError(ValueError):
    """A query that the API rejects."""


def page(
    items: Sequence[Mapping[str, Any]],
    query: Mapping[str, str],
    key: str,
    fields: Collection[str] = (),
) -> dict[str, Any]:
    """One page of ``items`` as the list ``key``. ``fields``: allowed in filters. Raises
    BadQueryError.
    """
    filters = [_read(text, fields) for text in query.get("filterBy", "").split(",") if text]
    matches = [
        item for item in items if all(test(str(item[name]), value) for name, test, value in filters)
    ]
    if field := query.get("sortBy"):
        matches.sort(key=lambda item: str(item[field]), reverse=query.get("sortOrder") == "desc")
    offset, limit = _number(query, "offset", 0), _number(query, "limit", DEFAULT_LIMIT)
    if not 1 <= limit <= MOST:
        raise BadQueryError(f"limit must be from 1 to {MOST}")
    answer: dict[str, Any] = {key: matches[offset : offset + limit]}
    if offset + limit < len(matches):
        answer["next"] = offset + limit
    return answer


def _read(text: str, fields: Collection[str]) -> tuple[str, Callable[[str, str], bool], str]:
    match = _FILTER.fullmatch(text)
    if match is None or match[1] not in fields:
        raise BadQueryError(f"filterBy: '{text}' is not a valid filter")
    return match[1], _TESTS[match[2]], match[3]


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isdecimal():
        raise BadQueryError(f"{name} must be a number")
    return int(text)


def listed(workload: RunaiWorkload) -> dict[str, Any]:
    """Return a workload in a list."""
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


def detailed(workload: RunaiWorkload) -> dict[str, Any]:
    """Return a single workload: also has the scheduler's reasons for a pending one, which lists
    omit.
    """
    return {
        **listed(workload),
        "pendingSchedulingMessages": workload.waits if workload.phase == "Pending" else [],
    }


def created(workload: RunaiWorkload, requested: str) -> dict[str, Any]:
    """Return the answer to the request that created a workload with the name ``requested``."""
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


def event(workload: RunaiWorkload, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event of a workload. Fields that ``own`` omits have defaults."""
    usual = {
        "createdAt": workload.changed,
        "clusterId": workload.project.cluster,
        "type": "Normal",
        "message": "",
    }
    return {**usual, **own}


def pods(workload: RunaiWorkload) -> list[dict[str, Any]]:
    """Return the pods of a workload, each on a node of its own."""
    return [
        {
            "name": f"{workload.name}-{number}",
            "id": f"{workload.id}-{number}",
            "workloadId": workload.id,
            "clusterId": workload.project.cluster,
            "createdAt": workload.created,
            "updatedAt": workload.changed,
            "tenantId": _TENANT,
            "priorityClassName": "train",
            "containers": [],
            "nodeName": f"node-{number}",
            "k8sPhase": "Running",
            "k8sPhaseUpdatedAt": workload.changed,
        }
        for number in range(1, pods_of(workload.kind, workload.body) + 1)
    ]


def cluster(value: RunaiCluster) -> dict[str, Any]:
    """Return a cluster in a list."""
    return {
        "uuid": value.uuid,
        "name": value.name,
        "tenantId": _TENANT,
        "createdAt": now(),
        "version": "2.24.0",
    }


def project(value: RunaiProject) -> dict[str, Any]:
    """Return a project in a list."""
    return {
        "id": value.id,
        "name": value.name,
        "clusterId": value.cluster,
        "status": {"namespace": f"runai-{value.name}"},
    }
