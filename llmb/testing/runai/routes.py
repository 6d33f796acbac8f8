# SPDX-License-Identifier: Apache-2.0
"""What the API does with each request that it knows; any other is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmb.testing.runai.bodies import faults_of
from llmb.testing.runai.lists import BadQueryError, page
from llmb.testing.runai.plane import ControlPlane
from llmb.testing.runai.workload import Workload

_FILTERS = ("name", "projectId", "projectName", "clusterId", "phase", "type", "createdAt", "completedAt")
_LISTS = ("filterBy", "sortBy", "sortOrder", "offset", "limit", "search")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the API."""

    status: int
    data: Any
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that has found its route; ``words`` are the path's own."""

    plane: ControlPlane
    words: tuple[str, ...]
    query: Mapping[str, str]
    body: Any


def error(status: int, message: str, **more: Any) -> Answer:
    """An answer that says no."""
    return Answer(status=status, data={"code": status, "message": message, **more})


def answer_to(plane: ControlPlane, method: str, path: str, query: Mapping[str, str], body: Any) -> Answer:
    """Do what is asked. Raises BadQueryError."""
    for own_method, pattern, parameters, act in _ROUTES:
        match = re.fullmatch(pattern, path)
        if match is None or own_method != method:
            continue
        if unknown := [name for name in query if name not in parameters]:
            raise BadQueryError(f"'{unknown[0]}' is not a parameter")
        return act(Request(plane=plane, words=match.groups(), query=query, body=body))
    return error(404, f"no route for {method} {path}")


def _sign_in(request: Request) -> Answer:
    body = {name.lower(): value for name, value in (request.body or {}).items()}  # the API does not mind their case
    plane = request.plane
    kinds = {
        "client_credentials": (plane.keys, "clientid", "clientsecret"),
        "app_token": (plane.applications, "appid", "appsecret"),
    }
    known, key, secret = kinds.get(str(body.get("granttype")), (None, "", ""))
    if known is None:
        return error(400, "grantType is not known")
    if set(body) - {"granttype", key, secret}:
        return error(400, "unknown field")
    if body.get(key) not in known or known[body[key]] != body.get(secret):
        return error(401, "invalid credentials")
    return Answer(status=200, data=plane.new_token())


def _projects(request: Request) -> Answer:
    listed = [
        {"id": one.id, "name": one.name, "clusterId": one.cluster, "status": {"namespace": f"runai-{one.name}"}}
        for one in request.plane.projects
    ]
    return Answer(status=200, data=page(listed, request.query, "projects", ("name", "clusterId")))


def _clusters(request: Request) -> Answer:
    listed = [{"uuid": one.uuid, "name": one.name, "domain": None, "version": "2.24"} for one in request.plane.clusters]
    return Answer(status=200, data=listed)


def _list(request: Request) -> Answer:
    request.plane.step()
    deleted = request.query.get("deleted") == "true"
    kept = [one.data() for one in request.plane.workloads if (one.deleted is not None) == deleted]
    return Answer(status=200, data=page(kept, request.query, "workloads", _FILTERS))


def _one(request: Request) -> Answer:
    request.plane.step()
    workload = _find(request)
    return Answer(status=200, data=workload.data()) if workload is not None else error(404, "workload not found")


def _events(request: Request) -> Answer:
    workload = _find(request)
    if workload is None:
        return error(404, "workload not found")
    return Answer(status=200, data=page(workload.events, request.query, "events"))


def _create(request: Request) -> Answer:
    (kind,), plane, body = request.words, request.plane, request.body
    if faults := faults_of(kind, body):
        return error(400, "the request is not valid", details="; ".join(faults))
    project = next((one for one in plane.projects if one.id == body["projectId"]), None)
    if project is None or project.cluster != body["clusterId"]:
        return error(403, "no such project on this cluster")
    if any(one.name == body["name"] and one.project == project for one in plane.there()):
        return error(409, f"a workload named {body['name']} exists already")
    if issues := plane.issues(body):
        return error(400, "the workload does not comply with the policy", complianceIssues=issues)
    workload = plane.add(kind, body, project)
    data = {"workloadId": workload.id, "name": workload.name, "requestedName": body["name"], "actualPhase": "Creating"}
    return Answer(status=202, data=data)


def _suspend(request: Request) -> Answer:
    workload = _find(request)
    if workload is None or workload.kind != request.words[0]:
        return error(404, "workload not found")
    request.plane.stop(workload)
    return Answer(status=202, data={})


def _delete(request: Request) -> Answer:
    workload = _find(request)
    if workload is None or workload.kind != request.words[0]:
        return error(404, "workload not found")
    request.plane.delete(workload)
    return Answer(status=202, data={})


def _find(request: Request) -> Workload | None:
    return next((one for one in request.plane.there() if one.id == request.words[-1]), None)


_KIND, _ID = "(trainings|distributed)", "([0-9a-z-]+)"
_ROUTES: tuple[tuple[str, str, tuple[str, ...], Callable[[Request], Answer]], ...] = (
    ("POST", "/token", (), _sign_in),
    ("GET", "/org-unit/projects", _LISTS, _projects),
    ("GET", "/clusters", ("verbosity",), _clusters),
    ("GET", "/workloads", (*_LISTS, "deleted"), _list),
    ("POST", f"/workloads/{_KIND}", (), _create),
    ("GET", f"/workloads/{_ID}/events", ("offset", "limit", "sortOrder"), _events),
    ("POST", f"/workloads/{_KIND}/{_ID}/suspend", (), _suspend),
    ("DELETE", f"/workloads/{_KIND}/{_ID}", (), _delete),
    ("GET", f"/workloads/{_ID}", (), _one),
)
