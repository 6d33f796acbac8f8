# SPDX-License-Identifier: Apache-2.0
"""The YAML job list: sections ``<workload>_<size>`` with defaults, tasks and overrides."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from llmb.errors import Fault, UsageError
from llmb.runs.job import JobList, JobRequest
from llmb.text import typed, yamlfile
from llmb.text.yamlfile import Document, DuplicateKey, KeyPath
from llmb.workload.switches import PARAMS, Count, Switches, is_dotted, merged
from llmb.workload.variables import JobEnvironment


def _not_empty(values: tuple[object, ...]) -> None:
    if not values:
        raise ValueError("is empty; omit it, or list at least one")


Counts = Annotated[tuple[Count, ...], _not_empty]
Texts = Annotated[tuple[str, ...], _not_empty]
Settings = tuple[str | float | bool | None, ...]


class ParamName(str):
    """The name of a parameter: one of llmb's, a dotted path of the framework's settings, or one that the workload
    declares, whose values are text."""

    __slots__ = ()

    @staticmethod
    def type_of(name: str) -> object:
        """The type of its value. Names and texts are checked when jobs are planned, with the workload."""
        return Counts if name in PARAMS else Settings if is_dotted(name) else Texts


Params = dict[ParamName, tuple[Any, ...]]
_KEY_PARAMS = ("max_steps", "gbs")  # parameters that are keys as well
_BELOW = "write it below 'overrides', or below 'defaults' of the section"
_BESIDE = "write it in the section or the task itself"
_LEVELS = {
    **dict.fromkeys(("env", "params"), _BELOW),
    **dict.fromkeys(("dtypes", "scales", "repeats", "profile", "add_profile", "proxy"), _BESIDE),
    **dict.fromkeys(("defaults", "tasks"), "write it in the section itself"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys(Switches):
    """The keys that a section, a task, ``defaults`` and ``overrides`` have in common."""

    max_steps: Count | None = None
    gbs: Count | None = None
    framework: Literal["nemo", "bridge"] | None = None
    release: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides(Keys):
    """A section's ``defaults`` or a task's ``overrides``."""

    env: JobEnvironment = field(default_factory=dict)
    params: Params = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEntry(Keys):
    """A task; a key that is None is that of its section."""

    dtypes: Annotated[tuple[str, ...], _not_empty] | None = None
    scales: Counts | None = None
    repeats: Count | None = None
    add_profile: bool | None = None
    profile: bool | None = None
    proxy: bool | None = None
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
    """The requests in a document, and its faults. Raises UsageError for an empty document or one that is no list."""
    if not isinstance(document.data, dict) or not document.data:
        what = "is not a job list" if document.data else "contains no jobs"
        hint = "write pretrain_nemotron4_15b: and below it scales: [16]"
        raise UsageError(f"{document.name} {what}", hint=hint, code="joblist-empty")
    requests: list[JobRequest] = []
    faults = list(document.faults)
    for header in document.data:
        found, wrong = _section(document, str(header), (header,))
        requests += found
        faults += wrong
    return JobList(requests=tuple(requests), faults=tuple(faults))


def _section(document: Document, header: str, path: KeyPath) -> tuple[list[JobRequest], list[Fault]]:
    """A request for each task, also for a faulty one, so that all its faults are found."""
    if not isinstance(document.data[path[0]], dict):
        hint = "below it, indented: scales: [16]   and: dtypes: [fp8, bf16]"
        message = f"{header} has no keys below it"
        return [], [Fault(place=document.place(path), message=message, hint=hint, code="section-empty", key=header)]
    section, faults = _read(Section, document, path)
    if section is None:
        return [], faults
    is_faulty = bool(faults) or isinstance(path[0], DuplicateKey)
    requests = []
    for at in _task_paths(document, path):
        task, wrong = _read(TaskEntry, document, at) if at != path else (TaskEntry(), [])
        if task is not None:
            request = _request(document, header, (path, section), (at, task))
            wrong += _contradictions(request, complete=not (is_faulty or wrong))
            requests.append(replace(request, faulty=is_faulty or bool(wrong)))
        faults += wrong
    if not requests and not faults:
        place = document.place((*path, "tasks"))
        faults.append(Fault(place=place, message=f"{header} has no tasks", code="tasks-empty", key=header))
    return requests, faults


def _read(cls: type[Entry], document: Document, path: KeyPath) -> tuple[Entry | None, list[Fault]]:
    """As ``typed.read_in_part``; a key at the wrong level has the hint where to write it."""
    entry, faults = typed.read_in_part(cls, document, path)
    return entry, [
        replace(fault, hint=_LEVELS.get(str(fault.value), fault.hint)) if fault.code == "key-unknown" else fault
        for fault in faults
    ]


def _task_paths(document: Document, path: KeyPath) -> list[KeyPath]:
    """The key paths of a section's tasks; its own where it has none and is the one task."""
    if "tasks" not in document.data[path[0]]:
        return [path]
    tasks = document.data[path[0]]["tasks"]
    if not isinstance(tasks, list):
        return [(*path, "tasks")]
    return [(*path, "tasks", index) for index in range(len(tasks))]


def _places(document: Document, *entries: tuple[KeyPath, TaskEntry]) -> dict[str | int, str]:
    """File and line of each dtype and scale, in the last entry that has them."""
    places: dict[str | int, str] = {}
    for path, entry in entries:
        named: dict[str, tuple[str | int, ...]] = {"dtypes": entry.dtypes or (), "scales": entry.scales or ()}
        for name, values in named.items():
            places |= {value: document.place((*path, name, index)) for index, value in enumerate(values)}
    return places


def _key_places(document: Document, layers: Iterable[tuple[KeyPath, Keys]]) -> dict[str, str]:
    """File and line of each key and parameter that is set, in the last layer that sets it."""
    places: dict[str, str] = {}
    for path, layer in layers:
        names = [own.name for own in fields(layer) if getattr(layer, own.name) is not None]
        places |= {name: document.place((*path, name)) for name in names if (*path, name) in document.lines}
        if isinstance(layer, Overrides):
            places |= {name: document.place((*path, "params", name)) for name in layer.params}
    return places


def _contradictions(request: JobRequest, *, complete: bool) -> list[Fault]:
    """Keys that exclude each other, and missing scales where the request was read completely."""
    if request.profile and request.add_profile:
        hint = "add_profile adds one profiled run, profile profiles all"
        message = "profile and add_profile are both set"
        return [Fault(place=request.place, message=message, hint=hint, code="profile-twice", key="profile add_profile")]
    if complete and not request.scales:
        message = "no scales are given"
        return [
            Fault(place=request.place, message=message, hint="scales: [128, 256]", code="key-missing", key="scales")
        ]
    return []


def _request(
    document: Document, header: str, section: tuple[KeyPath, Section], task: tuple[KeyPath, TaskEntry]
) -> JobRequest:
    (above, common), (at, own) = section, task

    def pick(name: str, default: Any) -> Any:
        values = (getattr(own, name), getattr(common, name), default)
        return next(value for value in values if value is not None)

    layers: tuple[tuple[KeyPath, Keys], ...] = (
        ((*above, "defaults"), common.defaults),
        (above, common),
        ((*above, "overrides"), common.overrides),
        (at, own),
        ((*at, "overrides"), own.overrides),
    )
    keys = [layer for _, layer in layers]
    params = {str(name): values for layer in keys for name, values in _params(layer).items()}
    return JobRequest(
        workload=header,
        place=document.place(at),
        header=document.place(above),
        places=_places(document, section, task),
        key_places=_key_places(document, layers),
        dtypes=pick("dtypes", ()),
        scales=pick("scales", ()),
        repeats=pick("repeats", 1),
        profile=pick("profile", False),
        add_profile=pick("add_profile", False),
        proxy=pick("proxy", False),
        env={name: str(value) for layer in keys if isinstance(layer, Overrides) for name, value in layer.env.items()},
        params={name: values for name, values in params.items() if name in PARAMS},
        parameters={name: values for name, values in params.items() if name not in PARAMS and not is_dotted(name)},
        dotted={name: values[-1] for name, values in params.items() if is_dotted(name)},
        framework=_last(keys, "framework"),
        release=_last(keys, "release"),
        switches=merged(keys),
    )


def _last(layers: Iterable[Keys], name: str) -> str | None:
    """The value of a key in the last layer that sets it."""
    given: list[str] = [value for layer in layers if (value := getattr(layer, name)) is not None]
    return given[-1] if given else None


def _params(layer: Keys) -> dict[str, tuple[Any, ...]]:
    """The parameters of a layer; its ``params`` override its keys."""
    found: dict[str, tuple[Any, ...]] = {
        name: (value,) for name in _KEY_PARAMS if (value := getattr(layer, name)) is not None
    }
    if isinstance(layer, Overrides):
        found |= {str(name): values for name, values in layer.params.items()}
    return found
