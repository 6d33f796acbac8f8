# SPDX-License-Identifier: Apache-2.0
"""The YAML job list: sections ``<workload>_<size>`` with defaults, tasks and overrides."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from llmb.errors import Fault, UsageError
from llmb.planning.joblist.keys import Count, SwitchKeys, params_of, switches_of
from llmb.runs.job import STRONG, JobList, JobRequest
from llmb.text import typed, yamlfile
from llmb.text.names import suggest
from llmb.text.yamlfile import Document, DuplicateKey, KeyPath
from llmb.workload.params import PARAMS
from llmb.workload.variables import JobEnvironment


def _known_param(name: str) -> None:
    if name not in PARAMS:
        raise ValueError(f"'{name}' is not a parameter; {suggest(name, PARAMS)}")


def _some(values: tuple[object, ...]) -> None:
    if not values:
        raise ValueError("names none; leave it out, or name some")


Counts = Annotated[tuple[Count, ...], _some]
Params = dict[Annotated[str, _known_param], Counts]


_BELOW = "write it below 'overrides', or below 'defaults' of the section"
_BESIDE = "write it in the section or the task itself"
_LEVELS = {
    **dict.fromkeys(("env", "params"), _BELOW),
    **dict.fromkeys(("dtypes", "scales", "repeats", "profile", "add_profile", "proxy", STRONG), _BESIDE),
    **dict.fromkeys(("defaults", "tasks"), "write it in the section itself"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides(SwitchKeys):
    """What a section's ``defaults`` and a task's ``overrides`` may say."""

    env: JobEnvironment = field(default_factory=dict)
    params: Params = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEntry(SwitchKeys):
    """A task; what is None comes from its section."""

    dtypes: Annotated[tuple[str, ...], _some] | None = None
    scales: Counts | None = None
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


Entry = TypeVar("Entry", bound=TaskEntry)


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
    if not isinstance(document.data[path[0]], dict):
        hint = "below it, further in: scales: [16]   and: dtypes: [fp8, bf16]"
        return [], [Fault(place=document.place(path), message=f"{header} says nothing of its jobs", hint=hint)]
    section, faults = _read(Section, document, path)
    if section is None:
        return [], faults
    common = bool(faults) or isinstance(path[0], DuplicateKey)
    requests = []
    for at in _task_paths(document, path):
        task, wrong = _read(TaskEntry, document, at) if at != path else (TaskEntry(), [])
        if task is not None:
            request = _request(header, section, task, document.place(at))
            wrong += _contradictions(request, whole=not (common or wrong))
            places = _places(document, (path, section), (at, task))
            request = replace(request, header=document.place(path), places=places)
            requests.append(replace(request, faulty=common or bool(wrong)))
        faults += wrong
    if not requests and not faults:
        faults.append(Fault(place=document.place((*path, "tasks")), message=f"{header} has no tasks"))
    return requests, faults


def _read(cls: type[Entry], document: Document, path: KeyPath) -> tuple[Entry | None, list[Fault]]:
    """As ``typed.read_in_part``; the fix for a key that stands at the wrong level is the right one."""
    entry, faults = typed.read_in_part(cls, document, path)
    keys = (re.search(r"'(\w+)' is not a key here$", fault.message) for fault in faults)
    return entry, [
        replace(fault, hint=_LEVELS[key[1]]) if key is not None and key[1] in _LEVELS else fault
        for fault, key in zip(faults, keys, strict=True)
    ]


def _task_paths(document: Document, path: KeyPath) -> list[KeyPath]:
    """Where the tasks of a section stand; the section itself is the one task where it has none."""
    if "tasks" not in document.data[path[0]]:
        return [path]
    tasks = document.data[path[0]]["tasks"]
    if not isinstance(tasks, list):
        return [(*path, "tasks")]
    return [(*path, "tasks", index) for index in range(len(tasks))]


def _places(document: Document, *said: tuple[KeyPath, TaskEntry]) -> dict[str | int, str]:
    """Where each dtype and scale stands, and strong scaling: in the last of ``said`` that names it."""
    places: dict[str | int, str] = {}
    for path, entry in said:
        named: dict[str, tuple[str | int, ...]] = {"dtypes": entry.dtypes or (), "scales": entry.scales or ()}
        for name, values in named.items():
            places |= {value: document.place((*path, name, index)) for index, value in enumerate(values)}
        if entry.strong_scaling is not None:
            places[STRONG] = document.place((*path, STRONG))
    return places


def _contradictions(request: JobRequest, *, whole: bool) -> list[Fault]:
    """What does not go together, and what is missing; only of a ``whole`` request is it known that it is."""
    if request.profile and request.add_profile:
        hint = "add_profile adds one profiled run, profile profiles all"
        return [Fault(place=request.place, message="profile and add_profile are both set", hint=hint)]
    if whole and not request.scales:
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
        env={name: str(value) for layer in layers for name, value in _env_of(layer).items()},
        params=_params(section, task),
        switches=switches_of(layers),
    )


def _env_of(layer: SwitchKeys) -> Mapping[str, str | bool]:
    return layer.env if isinstance(layer, Overrides) else {}


def _params(section: Section, task: TaskEntry) -> dict[str, tuple[int, ...]]:
    """What the layers give, each over those before it; within one its ``params`` over its own key."""
    found: dict[str, tuple[int, ...]] = {}
    for layer in (section.defaults, section, section.overrides, task, task.overrides):
        found |= params_of((layer,))
        found |= layer.params if isinstance(layer, Overrides) else {}
    return found
