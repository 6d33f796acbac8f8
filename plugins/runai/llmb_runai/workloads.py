# SPDX-License-Identifier: Apache-2.0
"""The calls of Run:ai's API that llmb makes: find the project, and create, list, read and stop
workloads.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmb.api import LlmbError, UnclearError
from llmb_runai.rest import RestClient
from llmb_runai.rest_errors import (
    NotThereError,
    RefusedRequestError,
    is_of_one,
    not_understood,
)
from llmb_runai.runai_config import RunaiConfig

_SKEW = 3600.0  # seconds that the server's clock may differ from ours
_FEW = 3  # workloads that are requested one by one and not as a list


class ProjectError(LlmbError):
    """The configured project does not exist, or is on several clusters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project on one cluster, by their ids."""

    id: str
    cluster: str


@dataclass(slots=True, kw_only=True)
class _Memory:
    project: Project | None = None
    narrows: bool = True  # whether lists can be filtered by project
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The project's workloads, as plain data of the API."""

    client: RestClient
    runai: RunaiConfig
    memory: _Memory = field(default_factory=_Memory)

    @property
    def project(self) -> Project:
        """The configured project, looked up once. Raises ProjectError, LlmbError."""
        with self.memory.lock:
            if self.memory.project is None:
                self.memory.project = self._find_project()
            return self.memory.project

    def create(self, kind: str, content: Mapping[str, Any]) -> str:
        """Create a workload, once. Return its id. Raises UnclearError, RefusedRequestError,
        LlmbError.
        """
        project = self.project
        head = {"name": content["name"], "projectId": project.id, "clusterId": project.cluster}
        answer = self.client.create(f"/workloads/{kind}", {**head, **content})
        workload_id = answer.get("workloadId") if isinstance(answer, dict) else None
        if not isinstance(workload_id, str) or not workload_id:
            message = "Run:ai's answer names no workload"
            raise UnclearError(
                message, hint="llmb-run jobs reconcile finds it", code="answer-invalid"
            )
        return workload_id

    def by_id(self, workload_id: str) -> dict[str, Any] | None:
        """A workload, or None where there is none of that id. Raises LlmbError."""
        try:
            data = self.client.get(f"/workloads/{workload_id}")
        except NotThereError:
            return None
        if not isinstance(data, dict) or data.get("id", workload_id) != workload_id:
            message = f"Run:ai's answer is not workload {workload_id}"
            raise LlmbError(
                message, hint="try again later", code="answer-invalid", value=workload_id
            )
        return data

    def by_ids(
        self, ids: Sequence[str], since: float
    ) -> tuple[dict[str, dict[str, Any]], dict[str, LlmbError]]:
        """The workloads of these ids, all created after ``since`` in seconds since the epoch, and
        the errors for single ones that the API refuses to show. Raises LlmbError.
        """
        id_set, workloads = set(ids), dict[str, dict[str, Any]]()
        refusals = dict[str, LlmbError]()
        if len(id_set) > _FEW:
            listed = self._listed(_since(since))
            workloads = {
                workload["id"]: workload
                for workload in listed
                if isinstance(workload.get("id"), str) and workload["id"] in id_set
            }
        for workload_id in sorted(id_set - workloads.keys()):  # a list may be outdated
            try:
                workload = self.by_id(workload_id)
            except LlmbError as error:
                if not is_of_one(error):
                    raise
                refusals[workload_id] = error
                continue
            if workload is not None:
                workloads[workload_id] = workload
        return workloads, refusals

    def by_names(
        self, names: Sequence[str], since: float, *, deleted: bool = False
    ) -> dict[str, dict[str, Any]]:
        """The first workload of each of these names, among existing or among ``deleted`` ones."""
        filters = [f"name=={name}" for name in names] if len(names) <= _FEW else [_since(since)]
        name_set, workloads = set(names), dict[str, dict[str, Any]]()
        for workload in (
            workload for text in filters for workload in self._listed(text, deleted=deleted)
        ):
            name = workload.get("name")
            if isinstance(name, str) and name in name_set and name not in workloads:
                workloads[name] = workload
        return workloads

    def events(self, workload_id: str) -> list[dict[str, Any]]:
        """Kubernetes' latest events of a workload, one page of them."""
        data = self.client.get(
            f"/workloads/{workload_id}/events", {"limit": 100, "sortOrder": "desc"}
        )
        events = data.get("events") if isinstance(data, dict) else None
        return (
            [event for event in events if isinstance(event, dict)]
            if isinstance(events, list)
            else []
        )

    def nodes(self, workload_id: str) -> list[str]:
        """The nodes of a workload's pods, each once. Raises LlmbError."""
        data = self.client.get(f"/workloads/{workload_id}/pods")
        pods = data.get("pods") if isinstance(data, dict) else None
        node_names = (
            [pod.get("nodeName") for pod in pods if isinstance(pod, dict)]
            if isinstance(pods, list)
            else []
        )
        return sorted({name for name in node_names if isinstance(name, str) and name})

    def suspend(self, kind: str, workload_id: str) -> None:
        """Stop a workload: its pods end, its record stays. Does nothing where it no longer exists.
        Raises LlmbError.
        """
        try:
            self.client.post(f"/workloads/{kind}/{workload_id}/suspend")
        except NotThereError:
            return

    def _listed(self, selection: str, *, deleted: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the project's workloads that the filter ``selection`` selects.

        The oldest come first, so that new ones shift no page.
        """
        project, narrow = self.project.id, self.memory.narrows
        params: dict[str, str | int] = {"sortBy": "createdAt", "sortOrder": "asc"}
        params |= {"filterBy": f"{selection},projectId=={project}" if narrow else selection}
        params |= {"deleted": "true"} if deleted else {}
        try:
            for workload in self.client.pages("/workloads", "workloads", params):
                if workload.get("projectId") in (None, project) and _is_named(workload):
                    yield workload
        except RefusedRequestError:  # the documentation does not say which fields a filter may have
            if not narrow:
                raise
            self.memory.narrows = False
            yield from self._listed(selection, deleted=deleted)

    def _find_project(self) -> Project:
        name, cluster = self.runai.project, self.runai.cluster
        listed = self.client.pages("/org-unit/projects", "projects", {"filterBy": f"name=={name}"})
        named = [project for project in listed if project.get("name") == name]
        projects = [
            Project(id=str(project["id"]), cluster=str(project["clusterId"]))
            for project in named
            if {"id", "clusterId"} <= project.keys()
        ]
        if named and not projects:
            raise not_understood(
                self.client.base_url, f"project '{name}' without its id and cluster"
            )
        if not projects:
            message = f"this access key sees no project '{name}' in Run:ai"
            hint = (
                "check runai.project in cluster_config.yaml; if the project exists, ask for access"
                " to it"
            )
            raise ProjectError(
                message, hint=hint, code="project-unknown", key="runai.project", value=name
            )
        if len(projects) == 1 and cluster is None:
            return projects[0]
        data = self.client.get("/clusters")
        clusters = (
            [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
        )
        names = {str(entry.get("uuid")): str(entry.get("name")) for entry in clusters}
        candidates = [
            project
            for project in projects
            if cluster in (None, project.cluster, names.get(project.cluster))
        ]
        if len(candidates) == 1:
            return candidates[0]
        places = ", ".join(
            sorted(
                names.get(project.cluster, project.cluster) for project in candidates or projects
            )
        )
        if not candidates:
            message = f"project '{name}' of Run:ai is on {places}, not on cluster '{cluster}'"
        else:
            message = f"project '{name}' of Run:ai is on several clusters: {places}"
        hint = "set runai.cluster in cluster_config.yaml to one of them"
        raise ProjectError(
            message, hint=hint, code="project-ambiguous", key="runai.cluster", value=places
        )


def _is_named(workload: dict[str, Any]) -> bool:
    """Return True if an entry of a list names its workload."""
    return isinstance(workload.get("id"), str) and isinstance(workload.get("name"), str)


def _since(seconds: float) -> str:
    """The filter for workloads created after ``seconds``, allowing for different clocks."""
    return f"createdAt>={time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(seconds - _SKEW))}"
