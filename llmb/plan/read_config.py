# SPDX-License-Identifier: Apache-2.0
"""Reads a configuration with the section of its cluster type, which may be a plugin's."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from typing import Any

from llmb.contract.cluster_type import ClusterQuestion, ClusterType, OfferedTypes, required_fields
from llmb.contract.gpus import GpuTypes, known_types
from llmb.contract.schema import ClusterConfig
from llmb.core import names, typed
from llmb.core.values import dataclass
from llmb.core.yamlfile import Document
from llmb.errors import Fault, InputFaults, KeyFaultError, LlmbError, UsageError

ClusterTypes = Mapping[str, ClusterType]
KEY = "cluster_type"
NEWER = "config-newer"
VERSION = 2  # of ``schema_version``
_ADD = {
    KEY: "add it: 'cluster_type: slurm', or local, runai",
    "gpu_type": "add it: 'gpu_type: h100', or cpu without GPUs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionsRead:
    """The sections of cluster types by their keys, and ``rest``, the document without them."""

    rest: Document
    sections: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()


def kind_in(data: Any, types: Callable[[], ClusterTypes]) -> ClusterType | None:
    """Return the cluster type that ``data`` names, or None if it names none of ``types``."""
    name = data.get(KEY) if isinstance(data, dict) else None
    return types().get(name) if isinstance(name, str) else None


def read_config(
    document: Document,
    *,
    types: GpuTypes | None = None,
    cluster_types: Callable[[], ClusterTypes],
    any_type: bool = False,
) -> ClusterConfig:
    """Return the configuration in ``document``, without the layers above it.

    ``types`` and ``cluster_types`` are all known ones. With ``any_type``, the section of a type
    that no plugin offers here is skipped.

    Raises InputFaults with every fault at file and line, or UsageError with the code NEWER for a
    file of a later release. A cluster type that no plugin offers is no fault by itself.
    """
    _check_version(document)
    kind = kind_in(document.data, cluster_types)
    read = read_sections(document, kind, cluster_types)
    rest = _without_unknown(read.rest) if any_type and kind is None else read.rest
    try:
        gpu_types = known_types() if types is None else types
        config = typed.read(ClusterConfig, rest, types=gpu_types, kind=kind, sections=read.sections)
    except InputFaults as error:
        faults = [*error.faults, *read.faults]
        name = document.data.get(KEY) if isinstance(document.data, dict) else None
        if kind is None and isinstance(name, str):
            faults = [
                unknown_type(document, name, cluster_types()),
                *(fault for fault in faults if fault.key != name),
            ]
        faults = [replace(fault, hint=fault.hint or _missing_fix(fault)) for fault in faults]
        faults = with_section_hints(faults, cluster_types())
        raise InputFaults(faults, hint=error.hint) from error
    if read.faults:
        raise InputFaults([*read.faults])
    return config


def _without_unknown(document: Document) -> Document:
    """Return ``document`` without mappings under unknown keys: one may be a plugin's section."""
    if not isinstance(document.data, dict):
        return document
    keys = {field.name for field in fields(ClusterConfig)}
    data = {
        key: value
        for key, value in document.data.items()
        if key in keys or not isinstance(value, dict)
    }
    return replace(document, data=data)


def _check_version(document: Document) -> None:
    """Raise UsageError for a later release's file, whose unknown keys are no faults."""
    version = document.data.get("schema_version") if isinstance(document.data, dict) else None
    if type(version) is int and version > VERSION:
        place = document.place(("schema_version",))
        message = (
            f"{place}: a newer llmb wrote this file: its schema_version is {version}, and this one"
            f" reads {VERSION}"
        )
        hint = (
            "update llmb: pip install . in its newer checkout; or choose another install directory"
        )
        raise UsageError(message, hint=hint, code=NEWER, key="schema_version", value=version)


def with_section_hints(
    faults: Iterable[Fault], types: ClusterTypes, schema: type = ClusterConfig
) -> list[Fault]:
    """Return ``faults`` with a hint for each unknown key that resembles a type's section."""
    keys = {kind.key for kind in types.values() if kind.key is not None}
    choices = [*(key.name for key in fields(schema)), *sorted(keys)]
    return [
        replace(fault, hint=f"did you mean '{near}'?")
        if fault.code == "key-unknown" and (near := names.nearest(fault.key, choices)) in keys
        else fault
        for fault in faults
    ]


def _missing_fix(fault: Fault) -> str | None:
    return _ADD.get(str(fault.value)) if fault.code == "key-missing" and not fault.key else None


def unknown_type(document: Document, name: str, types: ClusterTypes) -> Fault:
    """Return the fault of a cluster type that nobody offers, or whose plugin is skipped."""
    error = no_type(name, types)
    fault = error.as_fault(document.place((KEY,)))
    return replace(fault, message=f"{KEY} {fault.message}", key=KEY)


def no_type(name: str, types: ClusterTypes) -> KeyFaultError:
    """Return the error for a cluster type ``name`` that is not there.

    It names a skipped plugin and the reason, or the nearest known type.
    """
    type_names = sorted(types)
    skipped = types.skipped(name) if isinstance(types, OfferedTypes) else ()
    for plugin in (plugin for plugin in skipped if plugin.offers):
        message = f"'{name}' cannot be used: plugin {plugin.source} is skipped: {plugin.reason}"
        return KeyFaultError(
            message, hint="llmb-run plugins list", code="cluster-type-skipped", value=name
        )
    close = names.nearest(name, type_names)
    hint = (
        f"did you mean '{close}'?"
        if close
        else f"one of {', '.join(type_names)}; or install the plugin that offers it"
    )
    if skipped and not close:
        plugins = "; ".join(f"{plugin.source} ({plugin.reason})" for plugin in skipped)
        hint = f"one of {', '.join(type_names)}; plugins that are skipped may offer it: {plugins}"
    return KeyFaultError(
        f"'{name}' is not known", hint=hint, code="cluster-type-unknown", value=name
    )


def read_sections(
    document: Document,
    kind: ClusterType | None,
    types: Callable[[], ClusterTypes],
    *,
    asks: bool = False,
) -> SectionsRead:
    """Read the sections of cluster types: that of ``kind``, and each other one in ``document``.

    ``asks``: the caller reports missing keys.
    """
    if not isinstance(document.data, dict):
        return SectionsRead(rest=document)
    kinds = {kind.key: kind} if kind is not None and kind.key is not None else {}
    for other in types().values():
        if other.key is not None and other.key in document.data:
            kinds.setdefault(other.key, other)
    sections: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, owner in kinds.items():
        sections[key], section_faults = _read_section(document, owner, key, asks=asks)
        faults += section_faults
    rest = {name: value for name, value in document.data.items() if name not in kinds}
    return SectionsRead(
        rest=replace(document, data=rest),
        sections={key: value for key, value in sections.items() if value is not None},
        faults=tuple(faults),
    )


def _read_section(
    document: Document, kind: ClusterType, key: str, *, asks: bool
) -> tuple[Any, list[Fault]]:
    """Return the section of ``kind`` at ``key``, by default that of its schema, and its faults."""
    schema = kind.schema
    assert schema is not None  # a type without a schema has no key
    try:
        if document.data.get(key) is None:
            missing = required_fields(schema)
            named = [] if asks else [f"{key}.{name}" for name in missing]
            return None if missing else schema(), [
                Fault(
                    place=document.name,
                    message=f"'{name}' is missing",
                    code="key-missing",
                    key=name,
                )
                for name in named
            ]
        value, faults = typed.read_in_part(schema, document, (key,))
        if asks:
            faults = [fault for fault in faults if fault.code != "key-missing" or fault.key != key]
        return value, faults or _refused(document, kind, document.data[key])
    except UsageError:
        raise
    except Exception as error:
        return None, [failed(kind, f"reading {key}", error, document.place((key,)))]


def _refused(document: Document, kind: ClusterType, data: Any) -> list[Fault]:
    """The faults that the questions' checks find in a section."""
    faults = []
    for question in kind.questions:
        path = (str(kind.key), *question.key.split("."))
        value = data
        for part in path[1:]:
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None and (reason := reason_against(question, value)) is not None:
            faults.append(
                Fault(
                    place=document.place(path),
                    message=f"{'.'.join(path)}: {reason}",
                    code="value-not-allowed",
                    key=".".join(path),
                    value=value,
                )
            )
    return faults


def reason_against(question: ClusterQuestion, value: Any) -> str | None:
    """Return why the question's check refuses ``value``, None if it does not."""
    reason = question.check(value)
    return None if reason is None else str(reason)


def failed(kind: ClusterType, action: str, error: BaseException, place: str = "") -> Fault:
    """Return the fault of a cluster type whose code failed. It names the plugin."""
    return Fault(
        place=place,
        message=(
            f"plugin {kind.source or 'llmb'}: cluster type {kind.name} failed {action}:"
            f" {_described(error)}"
        ),
        hint="report it to the plugin's maintainers",
        code="plugin-failed",
        key=kind.name,
        value=kind.source,
    )


def raised_by(kind: ClusterType, method: str, error: BaseException) -> LlmbError:
    """The error of a cluster type's own code that failed."""
    fault = failed(kind, f"in {method}", error)
    return LlmbError(fault.message, hint=fault.hint, code=fault.code, key=method, value=kind.source)


def _described(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
