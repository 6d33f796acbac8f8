# SPDX-License-Identifier: Apache-2.0
"""The YAML job list: sections ``<workload>_<size>`` with defaults, tasks and overrides."""

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from llmb.contract.entry import JobEntry, JobList
from llmb.contract.launch_variable import NO_VARIABLES, Variables
from llmb.contract.settings import Settings
from llmb.contract.switches import PARAMS, is_dotted
from llmb.core import typed, yamlfile
from llmb.core.yamlfile import Document, DuplicateKey, KeyPath
from llmb.errors import Fault, UsageError
from llmb.plan.joblist_keys import Keys, Overrides, Section, TaskEntry, layer_of, resolved

_BELOW = "write it below 'overrides', or below 'defaults' of the section"
_BESIDE = "write it in the section or the task itself"
_LEVELS = {
    **dict.fromkeys(("env", "params"), _BELOW),
    **dict.fromkeys(("dtypes", "scales", "repeats", "profile", "add_profile", "proxy"), _BESIDE),
    **dict.fromkeys(("defaults", "tasks"), "write it in the section itself"),
    **dict.fromkeys(
        ("gpu_type", "gpu_types"), "remove it: --gpu-type TYPE sets it for the whole list"
    ),
}


_OF_A_CLUSTER = {"cluster_type", "schema_version"}  # keys of a configuration or of answers

Entry = TypeVar("Entry", bound=TaskEntry)


def read(path: Path, variables: Variables = NO_VARIABLES) -> JobList:
    """The entries of the file, one for each task, and its faults.

    ``variables`` of other launchers in an environment are settings.
    """
    return entries_of(yamlfile.load(path, strict=False), variables)


def entries_of(document: Document, variables: Variables = NO_VARIABLES) -> JobList:
    """Return the entries in a document, and its faults. Raises UsageError without a list."""
    if not isinstance(document.data, dict) or not document.data:
        state = "is not a job list" if document.data else "contains no jobs"
        hint = "write pretrain_nemotron4_15b: and below it scales: [16]"
        raise UsageError(f"{document.name} {state}", hint=hint, code="joblist-empty")
    if _OF_A_CLUSTER & document.data.keys():
        message = f"{document.name} describes a cluster or its installation, and no jobs"
        hint = "give a job list; llmb-run docs job-lists shows what it has"
        raise UsageError(message, hint=hint, code="joblist-unknown", value=document.name)
    entries: list[JobEntry] = []
    faults = list(document.faults)
    notes: dict[str, None] = {}
    for header in document.data:
        of_section, section_faults = _section(document, str(header), (header,), notes, variables)
        entries += of_section
        faults += section_faults
    return JobList(entries=tuple(entries), faults=tuple(faults), notes=tuple(notes))


def _section(
    document: Document,
    header: str,
    path: KeyPath,
    notes: dict[str, None],
    variables: Variables,
) -> tuple[list[JobEntry], list[Fault]]:
    """An entry for each task, also for a faulty one, so that all its faults are found.

    Variables that are used as settings go to ``notes``.
    """
    if not isinstance(document.data[path[0]], dict):
        hint = _LEVELS.get(header, "below it, indented: scales: [16]   and: dtypes: [fp8, bf16]")
        return [], [
            Fault(
                place=document.place(path),
                message=f"{header} has no keys below it",
                hint=hint,
                code="section-empty",
                key=header,
            )
        ]
    section, faults = _read(Section, document, path, variables)
    if section is None:
        return [], faults
    is_faulty = bool(faults) or isinstance(path[0], DuplicateKey)
    entries = []
    for at in _task_paths(document, path):
        task, task_faults = (
            _read(TaskEntry, document, at, variables) if at != path else (TaskEntry(), [])
        )
        if task is not None:
            layers = _layers((path, section), (at, task))
            notes |= dict.fromkeys(_used_variables(document, layers))
            entry = _entry(document, header, (path, section), (at, task))
            task_faults += _contradictions(entry, complete=not (is_faulty or task_faults))
            entries.append(replace(entry, faulty=is_faulty or bool(task_faults)))
        faults += task_faults
    if not entries and not faults:
        place = document.place((*path, "tasks"))
        faults.append(
            Fault(place=place, message=f"{header} has no tasks", code="tasks-empty", key=header)
        )
    return entries, faults


def _read(
    cls: type[Entry], document: Document, path: KeyPath, variables: Variables
) -> tuple[Entry | None, list[Fault]]:
    """Read as ``typed.read_in_part`` does. A key at the wrong level has the hint of its own.

    ``variables`` in the environments are settings.
    """
    entry, faults = typed.read_in_part(cls, document, path)
    faults = [
        replace(fault, hint=_LEVELS.get(str(fault.value), fault.hint))
        if fault.code == "key-unknown"
        else fault
        for fault in faults
    ]
    for name in ("defaults", "overrides"):
        env = _environment(document, (*path, name, "env"))
        keys: Overrides | None = getattr(entry, name, None)
        if entry is None or keys is None or not env:
            continue
        keys, errors = resolved(keys, env, variables)
        changed: dict[str, Any] = {name: keys}
        entry, at = replace(entry, **changed), (*path, name)
        value = typed.value_at(document.data, at)
        faults += [typed.fault_of(error, document, at, value) for error in errors]
    return entry, faults


def _environment(document: Document, path: KeyPath) -> dict[str, bool | str]:
    """Return the environment at ``path``, empty without a valid one."""
    try:
        env, faults = typed.read_in_part(dict[str, bool | str], document, path)
    except (LookupError, TypeError):
        return {}
    return env if env is not None and not faults else {}


def _task_paths(document: Document, path: KeyPath) -> list[KeyPath]:
    """Return the key paths of a section's tasks, or the section's if it is the one task."""
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
        named: dict[str, tuple[str | int, ...]] = {
            "dtypes": entry.dtypes or (),
            "scales": entry.scales or (),
        }
        for name, values in named.items():
            places |= {
                value: document.place((*path, name, index)) for index, value in enumerate(values)
            }
    return places


def _key_places(document: Document, layers: Iterable[tuple[KeyPath, Keys]]) -> dict[str, str]:
    """File and line of each key and parameter that is set, in the last layer that sets it."""
    places: dict[str, str] = {}
    for path, layer in layers:
        names = [field.name for field in fields(layer) if getattr(layer, field.name) is not None]
        places |= {
            name: document.place((*path, name)) for name in names if (*path, name) in document.lines
        }
        if isinstance(layer, Overrides):
            places |= {
                variable.sets: document.place((*path, "env", variable.name))
                for variable in layer.used
            }
            places |= {name: document.place((*path, "params", name)) for name in layer.params}
    return places


def _contradictions(entry: JobEntry, *, complete: bool) -> list[Fault]:
    """Return faults of keys that exclude each other, and of scales that are missing."""
    if entry.settings.profile and entry.add_profile:
        return [
            Fault(
                place=entry.place,
                message="profile and add_profile are both set",
                hint="add_profile adds one profiled run, profile profiles all",
                code="profile-twice",
                key="profile add_profile",
            )
        ]
    if complete and not entry.scales:
        return [
            Fault(
                place=entry.place,
                message="no scales are given",
                hint="scales: [128, 256]",
                code="key-missing",
                key="scales",
            )
        ]
    return []


def _layers(
    section: tuple[KeyPath, Section], task: tuple[KeyPath, TaskEntry]
) -> tuple[tuple[KeyPath, Keys], ...]:
    """Return the layers of a task with their key paths, of which later ones override."""
    (above, common), (at, entry) = section, task
    return (
        ((*above, "defaults"), common.defaults),
        (above, common),
        ((*above, "overrides"), common.overrides),
        (at, entry),
        ((*at, "overrides"), entry.overrides),
    )


def _used_variables(document: Document, layers: Iterable[tuple[KeyPath, Keys]]) -> Iterator[str]:
    """A note for each variable of another launcher that is used as a setting."""
    for path, layer in layers:
        for variable in layer.used if isinstance(layer, Overrides) else ():
            place = document.place((*path, "env", variable.name))
            yield f"{place}: {variable.name} is used as {variable.instead}"


def _entry(
    document: Document,
    header: str,
    section: tuple[KeyPath, Section],
    task: tuple[KeyPath, TaskEntry],
) -> JobEntry:
    (above, common), (at, entry) = section, task

    def pick(name: str, default: Any) -> Any:
        values = (getattr(entry, name), getattr(common, name), default)
        return next(value for value in values if value is not None)

    layers = _layers(section, task)
    settings: dict[str, Any] = {"workload": header}
    params: dict[str, tuple[Any, ...]] = {}
    key_values = [layer_of(layer) for _, layer in layers]
    for layer in key_values:
        settings |= layer.settings
        params = {name: params[name] for name in params if name not in layer.settings}
        params |= layer.params
    env = {name: value for layer in key_values for name, value in layer.env.items()}
    swept = {name: values for name, values in params.items() if name in PARAMS}
    return JobEntry(
        settings=Settings(**settings, env=env),
        sweeps={"dtype": pick("dtypes", ()), "scale": pick("scales", ()), **swept},
        parameters={
            name: values
            for name, values in params.items()
            if name not in PARAMS and not is_dotted(name)
        },
        dotted={name: values for name, values in params.items() if is_dotted(name)},
        repeats=pick("repeats", 1),
        add_profile=pick("add_profile", False),
        proxy=pick("proxy", False),
        slurm={name: value for layer in key_values for name, value in layer.slurm.items()},
        place=document.place(at),
        header=document.place(above),
        places=_places(document, section, task),
        key_places=_key_places(document, layers),
    )
