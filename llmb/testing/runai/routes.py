# SPDX-License-Identifier: Apache-2.0
"""What the API does with each request that it knows; any other is refused."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llmb.testing.runai import views
from llmb.testing.runai.answers import Answer, error
from llmb.testing.runai.bodies import faults_of
from llmb.testing.runai.lists import BadQueryError, page
from llmb.testing.runai.plane import ControlPlane
from llmb.testing.runai.workload import Workload

_OF_PROJECTS = ("name", "clusterId")
_FILTERS = ("name", "projectId", "projectName", "clusterId", "phase", "type", "createdAt", "completedAt")
_LISTS = ("filterBy", "sortBy", "sortOrder", "offset", "limit", "search")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that has found its route; ``words`` are the path's own."""

    plane: ControlPlane
    words: tuple[str, ...]
    query: Mapping[str, str]
    body: Any


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


def _projects(request: Request) -> Answer:
    found = page([views.project(one) for one in request.plane.projects], request.query, "projects", _OF_PROJECTS)
    return Answer(status=200, data=found)


def _clusters(request: Request) -> Answer:
    return Answer(status=200, data=[views.cluster(one) for one in request.plane.clusters])


def _list(request: Request) -> Answer:
    request.plane.step()
    deleted = request.query.get("deleted") == "true"
    kept = [views.listed(one) for one in request.plane.workloads if (one.deleted is not None) == deleted]
    return Answer(status=200, data=page(kept, request.query, "workloads", _FILTERS))


def _one(request: Request) -> Answer:
    request.plane.step()
    workload = _find(request)
    return (
        Answer(status=200, data=views.detailed(workload)) if workload is not None else error(404, "workload not found")
    )


def _events(request: Request) -> Answer:
    workload = _find(request)
    if workload is None:
        return error(404, "workload not found")
    events = [views.event(workload, one) for one in workload.events]
    return Answer(status=200, data=page(events, request.query, "events"))


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
    return Answer(status=202, data=views.created(workload, body["name"]))


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
    ("GET", "/org-unit/projects", _LISTS, _projects),
    ("GET", "/clusters", ("verbosity",), _clusters),
    ("GET", "/workloads", (*_LISTS, "deleted"), _list),
    ("POST", f"/workloads/{_KIND}", (), _create),
    ("GET", f"/workloads/{_ID}/events", ("offset", "limit", "sortOrder"), _events),
    ("POST", f"/workloads/{_KIND}/{_ID}/suspend", (), _suspend),
    ("DELETE", f"/workloads/{_KIND}/{_ID}", (), _delete),
    ("GET", f"/workloads/{_ID}", (), _one),
)
