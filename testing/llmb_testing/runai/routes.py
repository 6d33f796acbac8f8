# SPDX-License-Identifier: Apache-2.0
"""Routes of the API, including sign-in. Requests without a route are rejected."""

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from llmb_runai.runai_checks import faults_of_body
from llmb_testing.runai import views
from llmb_testing.runai.plane import ControlPlane
from llmb_testing.runai.views import BadQueryError, ViewAnswer, error, page
from llmb_testing.runai.workload import RunaiWorkload

_OF_PROJECTS = ("name", "clusterId")
_FILTERS = (
    "name",
    "projectId",
    "projectName",
    "clusterId",
    "phase",
    "type",
    "createdAt",
    "completedAt",
)
_LISTS = ("filterBy", "sortBy", "sortOrder", "offset", "limit", "search")
VERSIONS = {"/api/v1/token": 1, "/api/v2/token": 2}
_FORM = "application/x-www-form-urlencoded"
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_VALUES = ("value", "secret", "configMap", "podFieldRef", "userCredential")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiRequest:
    """A request of a known route."""

    plane: ControlPlane
    #: The variable parts of its path.
    words: tuple[str, ...]
    query: Mapping[str, str]
    body: Any


def answer_to(
    plane: ControlPlane, method: str, path: str, query: Mapping[str, str], body: Any
) -> ViewAnswer:
    """Serve a request. Raises BadQueryError."""
    for own_method, pattern, parameters, act in _ROUTES:
        match = re.fullmatch(pattern, path)
        if match is None or own_method != method:
            continue
        if _ID in pattern and not _is_uuid(match.groups()[-1]):
            return error(400, f"'{match.groups()[-1]}' is not a UUID")
        if unknown_names := [name for name in query if name not in parameters]:
            raise BadQueryError(f"'{unknown_names[0]}' is not a parameter")
        return act(RunaiRequest(plane=plane, words=match.groups(), query=query, body=body))
    return error(404, f"no route for {method} {path}")


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _projects(request: RunaiRequest) -> ViewAnswer:
    projects = page(
        [views.project(project) for project in request.plane.projects],
        request.query,
        "projects",
        _OF_PROJECTS,
    )
    return ViewAnswer(status=200, data=projects)


def _clusters(request: RunaiRequest) -> ViewAnswer:
    return ViewAnswer(
        status=200, data=[views.cluster(cluster) for cluster in request.plane.clusters]
    )


def _list(request: RunaiRequest) -> ViewAnswer:
    request.plane.step()
    deleted = request.query.get("deleted") == "true"
    workloads = [
        views.listed(workload)
        for workload in request.plane.workloads
        if (workload.deleted is not None) == deleted
    ]
    return ViewAnswer(status=200, data=page(workloads, request.query, "workloads", _FILTERS))


def _one(request: RunaiRequest) -> ViewAnswer:
    request.plane.step()
    workload = _find(request)
    return (
        ViewAnswer(status=200, data=views.detailed(workload))
        if workload is not None
        else error(404, "workload not found")
    )


def _events(request: RunaiRequest) -> ViewAnswer:
    workload = _find(request)
    if workload is None:
        return error(404, "workload not found")
    events = [views.event(workload, event) for event in workload.events]
    return ViewAnswer(status=200, data=page(events, request.query, "events"))


def _pods(request: RunaiRequest) -> ViewAnswer:
    workload = _find(request)
    if workload is None:
        return error(404, "workload not found")
    return ViewAnswer(status=200, data={"pods": views.pods(workload)})


def _create(request: RunaiRequest) -> ViewAnswer:
    (kind,), plane, body = request.words, request.plane, request.body
    if faults := faults_of(kind, body):
        return error(400, "the request is not valid", details="; ".join(faults))
    project = next((item for item in plane.projects if item.id == body["projectId"]), None)
    if project is None or project.cluster != body["clusterId"]:
        return error(403, "no such project on this cluster")
    if any(item.name == body["name"] and item.project == project for item in plane.there()):
        return error(409, f"a workload named {body['name']} exists already")
    if issues := plane.issues(body):
        return error(400, "the workload does not comply with the policy", complianceIssues=issues)
    workload = plane.add(kind, body, project)
    return ViewAnswer(status=202, data=views.created(workload, body["name"]))


def _suspend(request: RunaiRequest) -> ViewAnswer:
    workload = _find(request)
    if workload is None or workload.kind != request.words[0]:
        return error(404, "workload not found")
    request.plane.stop(workload)
    return ViewAnswer(status=202, data={})


def _delete(request: RunaiRequest) -> ViewAnswer:
    workload = _find(request)
    if workload is None or workload.kind != request.words[0]:
        return error(404, "workload not found")
    request.plane.delete(workload)
    return ViewAnswer(status=202, data={})


def _find(request: RunaiRequest) -> RunaiWorkload | None:
    return next(
        (workload for workload in request.plane.there() if workload.id == request.words[-1]), None
    )


# The published client calls an id a UUID; other words are refused, not missing.
_KIND, _ID = "(trainings|distributed)", "([^/]+)"
_ROUTES: tuple[tuple[str, str, tuple[str, ...], Callable[[RunaiRequest], ViewAnswer]], ...] = (
    ("GET", "/org-unit/projects", _LISTS, _projects),
    ("GET", "/clusters", ("verbosity",), _clusters),
    ("GET", "/workloads", (*_LISTS, "deleted"), _list),
    ("POST", f"/workloads/{_KIND}", (), _create),
    ("GET", f"/workloads/{_ID}/events", ("offset", "limit", "sortOrder"), _events),
    ("GET", f"/workloads/{_ID}/pods", (), _pods),
    ("POST", f"/workloads/{_KIND}/{_ID}/suspend", (), _suspend),
    ("DELETE", f"/workloads/{_KIND}/{_ID}", (), _delete),
    ("GET", f"/workloads/{_ID}", (), _one),
)


def faults_of(kind: str, content: Any) -> list[str]:
    """Everything that is wrong with a body."""
    messages = [str(fault) for fault in faults_of_body(kind, content)]
    return messages or [
        *_common_faults(content),
        *(_distributed_faults(content) if kind == "distributed" else ()),
    ]


def _common_faults(content: Mapping[str, Any]) -> Iterator[str]:
    """Faults that the types of the fields do not cover."""
    spec = content.get("spec") or {}
    if not spec.get("image"):
        yield "spec.image is missing"
    if not _NAME.fullmatch(content["name"]) or len(content["name"]) > 63:
        yield f"name '{content['name']}' is not a valid Kubernetes name"
    for index, variable in enumerate(spec.get("environmentVariables") or ()):
        if len([name for name in _VALUES if variable.get(name) is not None]) != 1:
            yield f"spec.environmentVariables[{index}] needs one value"


def _distributed_faults(content: Mapping[str, Any]) -> Iterator[str]:
    is_same = content.get("masterSpecSameAsWorker") or False
    if is_same == (content.get("masterSpec") is not None):
        yield "either masterSpecSameAsWorker or masterSpec"
    if (content.get("spec") or {}).get("distributedFramework") is None:
        yield "spec.distributedFramework is missing"


def sign_in(plane: ControlPlane, version: int, content: bytes, content_type: str) -> ViewAnswer:
    """Return a token, or an error. Raises ValueError if the body is not JSON."""
    if version not in plane.token_versions:
        return error(404, "page not found")
    if version == 2:
        return _second(plane, content.decode(), content_type)
    return _first(plane, json.loads(content) if content else {})


def _second(plane: ControlPlane, content: str, content_type: str) -> ViewAnswer:
    """OAuth 2: a form, and the error names of RFC 6749."""
    form = dict(parse_qsl(content))
    if content_type.partition(";")[0] != _FORM:
        return _denied(400, "invalid_request", "the body is not a form")
    if form.get("grant_type") != "client_credentials":
        return _denied(400, "unsupported_grant_type", "unknown grant_type")
    if odd := set(form) - {"grant_type", "client_id", "client_secret"}:
        return _denied(400, "invalid_request", f"{min(odd)} is not a parameter")
    if plane.keys.get(form.get("client_id", "")) != form.get("client_secret", ""):
        return _denied(401, "invalid_client", "invalid client credentials")
    data = {
        "access_token": plane.new_token(),
        "token_type": "Bearer",
        "expires_in": int(plane.token_seconds),
    }
    return ViewAnswer(status=200, data=data)


def _denied(status: int, name: str, reason: str) -> ViewAnswer:
    return ViewAnswer(status=status, data={"error": name, "error_description": reason})


def _first(plane: ControlPlane, content: dict[str, Any]) -> ViewAnswer:
    body = {name.lower(): value for name, value in content.items()}  # the API ignores case
    kinds = {
        "client_credentials": (plane.keys, "clientid", "clientsecret"),
        "app_token": (plane.applications, "appid", "appsecret"),
    }
    expected_id, key, secret = kinds.get(str(body.get("granttype")), (None, "", ""))
    if expected_id is None:
        return error(400, "unknown grantType")
    if set(body) - {"granttype", key, secret}:
        return error(400, "unknown field")
    if body.get(key) not in expected_id or expected_id[body[key]] != body.get(secret):
        return error(401, "invalid credentials")
    return ViewAnswer(
        status=200, data={"accessToken": plane.new_token(), "expiresIn": int(plane.token_seconds)}
    )
