# SPDX-License-Identifier: Apache-2.0
"""The YAML job list: sections ``<workload>_<size>`` with defaults, tasks and overrides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from llmb import typed, yamlfile
from llmb.errors import Fault, UsageError
from llmb.job import JobList, JobRequest
from llmb.joblist.keys import Count, SwitchKeys, params_of, switches_of
from llmb.names import suggest
from llmb.params import PARAMS
from llmb.variables import check_name, check_values
from llmb.yamlfile import Again, Document, KeyPath


def _known_param(name: str) -> None:
    if name not in PARAMS:
        raise ValueError(f"'{name}' is not a parameter; {suggest(name, PARAMS)}")


Params = dict[Annotated[str, _known_param], tuple[Count, ...]]
Env = Annotated[dict[Annotated[str, check_name], str], check_values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides(SwitchKeys):
    """What a section's ``defaults`` and a task's ``overrides`` may say."""

    env: Env = field(default_factory=dict)
    params: Params = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEntry(SwitchKeys):
    """A task; what is None comes from its section."""

    dtypes: tuple[str, ...] | None = None
    scales: tuple[Count, ...] | None = None
    repeats: Count | None = None
    add_profile: bool | None = None
    profile: bool | None = None
    proxy: bool | None = None
    strong_scaling: bool | None = None
    overrides: Overrides = field(default_factory=Overrides)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section(TaskEntry):
    """A section; without ``tasks`` its own dtypes and scales are one task."""

    defaults: Overrides = field(default_factory=Overrides)
    tasks: Any = None  # read one by one


def read(path: Path) -> JobList:
    """The requests of the file, one for each task, and its faults."""
    return requests_of(yamlfile.load(path, strict=False))


def requests_of(document: Document) -> JobList:
    """The requests in a document, and its faults. Raises UsageError when it is no list or an empty one."""
    if not isinstance(document.data, dict) or not document.data:
        what = "is not a job list" if document.data else "holds no jobs"
        raise UsageError(f"{document.name} {what}", hint="write pretrain_nemotron4_15b: and below it scales: [16]")
    requests: list[JobRequest] = []
    faults = list(document.faults)
    for header in document.data:
        found, wrong = _section(document, str(header), (header,))
        requests += found
        faults += wrong
    return JobList(requests=tuple(requests), faults=tuple(faults))


def _section(document: Document, header: str, path: KeyPath) -> tuple[list[JobRequest], list[Fault]]:
    """A request for each task, for a faulty one too, so that all its faults are found."""
    section, faults = typed.read_in_part(Section, document, path)
    if section is None:
        return [], faults
    common = bool(faults) or isinstance(path[0], Again)
    requests = []
    for at in _task_paths(document, path):
        task, wrong = typed.read_in_part(TaskEntry, document, at) if at != path else (TaskEntry(), [])
        if task is not None:
            request = _request(header, section, task, document.place(at))
            wrong += [] if common or wrong else _contradictions(request)
            requests.append(replace(request, header=document.place(path), faulty=common or bool(wrong)))
        faults += wrong
    if not requests and not faults:
        faults.append(Fault(place=document.place((*path, "tasks")), message=f"{header} has no tasks"))
    return requests, faults


def _task_paths(document: Document, path: KeyPath) -> list[KeyPath]:
    """Where the tasks of a section stand; the section itself is the one task where it has none."""
    if "tasks" not in document.data[path[0]]:
        return [path]
    tasks = document.data[path[0]]["tasks"]
    if not isinstance(tasks, list):
        return [(*path, "tasks")]
    return [(*path, "tasks", index) for index in range(len(tasks))]


def _contradictions(request: JobRequest) -> list[Fault]:
    if request.profile and request.add_profile:
        hint = "add_profile adds one profiled run, profile profiles all"
        return [Fault(place=request.place, message="profile and add_profile are both set", hint=hint)]
    if not request.scales:
        return [Fault(place=request.place, message="no scales are given", hint="scales: [128, 256]")]
    return []


def _request(header: str, section: Section, task: TaskEntry, place: str) -> JobRequest:
    def pick(name: str, default: Any) -> Any:
        own, common = getattr(task, name), getattr(section, name)
        return own if own is not None else common if common is not None else default

    layers = (section.defaults, section, section.overrides, task, task.overrides)
    return JobRequest(
        workload=header,
        place=place,
        dtypes=pick("dtypes", ()),
        scales=pick("scales", ()),
        repeats=pick("repeats", 1),
        profile=pick("profile", False),
        add_profile=pick("add_profile", False),
        proxy=pick("proxy", False),
        strong_scaling=pick("strong_scaling", False),
        env={**section.defaults.env, **section.overrides.env, **task.overrides.env},
        params=_params(section, task),
        switches=switches_of(layers),
    )


def _params(section: Section, task: TaskEntry) -> dict[str, tuple[int, ...]]:
    """What the layers give, each over those before it; within one its ``params`` over its own key."""
    found: dict[str, tuple[int, ...]] = {}
    for layer in (section.defaults, section, section.overrides, task, task.overrides):
        found |= params_of((layer,))
        found |= layer.params if isinstance(layer, Overrides) else {}
    return found
