# SPDX-License-Identifier: Apache-2.0
"""Reads a configuration with the section of its cluster type, which may be a plugin's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from llmb.config.cluster_type import ClusterQuestion, ClusterType, OfferedTypes, required_fields
from llmb.config.own_types import own_types
from llmb.config.schema import ClusterConfig
from llmb.errors import Fault, InputFaults, KeyFaultError, LlmbError, UsageError
from llmb.text import names, typed
from llmb.text.yamlfile import Document
from llmb.workload.gpus import GpuTypes, known_types

ClusterTypes = Mapping[str, ClusterType]
KEY = "cluster_type"
NEWER = "config-newer"
VERSION = 2  # of ``schema_version``
_ADD = {
    KEY: "add it: 'cluster_type: slurm', or local, runai",
    "gpu_type": "add it: 'gpu_type: h100', or cpu without GPUs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionRead:
    """``rest``: a document without the section of a plugin's cluster type; ``value``: the section, None without one."""

    rest: Document
    value: Any = None
    faults: tuple[Fault, ...] = ()


def kind_in(data: Any, types: Callable[[], ClusterTypes]) -> ClusterType | None:
    """The cluster type that ``data`` names; ``types`` is called only if it is none of llmb's own."""
    name = data.get(KEY) if isinstance(data, dict) else None
    if not isinstance(name, str):
        return None
    return own_types().get(name) or types().get(name)


def read_config(
    document: Document,
    *,
    types: GpuTypes | None = None,
    cluster_types: Callable[[], ClusterTypes] = own_types,
    any_type: bool = False,
) -> ClusterConfig:
    """The configuration in ``document``, without the layers above it.

    ``types``: every known GPU type; ``cluster_types``: every known cluster type, called for one that is not llmb's own.
    ``any_type``: read it without the section of a type that no plugin offers here. Raises InputFaults with every fault
    at file and line; UsageError with the code NEWER for a file of a later release, which alone is its fault. A cluster
    type that no plugin offers is no fault by itself.
    """
    _check_version(document)
    kind = kind_in(document.data, cluster_types)
    section = read_section(_without_unknown(document) if any_type and kind is None else document, kind)
    try:
        known = known_types() if types is None else types
        config = typed.read(ClusterConfig, section.rest, types=known, kind=kind, own_section=section.value)
    except InputFaults as error:
        faults = [*error.faults, *section.faults]
        name = document.data.get(KEY) if isinstance(document.data, dict) else None
        if kind is None and isinstance(name, str):
            faults = [unknown_type(document, name, cluster_types()), *(one for one in faults if one.key != name)]
        faults = [replace(one, hint=one.hint or _missing_fix(one)) for one in faults]
        raise InputFaults(faults, hint=error.hint) from error
    if section.faults:
        raise InputFaults([*section.faults])
    return config


def _without_unknown(document: Document) -> Document:
    """``document`` without mappings under unknown keys: one may be the section of a type that is not known here."""
    if not isinstance(document.data, dict):
        return document
    own = {field.name for field in fields(ClusterConfig)}
    kept = {key: value for key, value in document.data.items() if key in own or not isinstance(value, dict)}
    return replace(document, data=kept)


def _check_version(document: Document) -> None:
    """Raise UsageError for a file of a later release: its unknown keys are no faults of the user's."""
    version = document.data.get("schema_version") if isinstance(document.data, dict) else None
    if type(version) is int and version > VERSION:
        place = document.place(("schema_version",))
        message = (
            f"{place}: a newer llmb wrote this file: its schema_version is {version}, and this one reads {VERSION}"
        )
        hint = "update llmb: pip install --upgrade llmb llmb-installer; or choose another install directory"
        raise UsageError(message, hint=hint, code=NEWER, key="schema_version", value=version)


def _missing_fix(fault: Fault) -> str | None:
    return _ADD.get(str(fault.value)) if fault.code == "key-missing" and not fault.key else None


def unknown_type(document: Document, name: str, types: ClusterTypes) -> Fault:
    """The fault of a cluster type that neither llmb nor a plugin offers, or whose plugin is skipped."""
    error = no_type(name, types)
    fault = error.as_fault(document.place((KEY,)))
    return replace(fault, message=f"{KEY} {fault.message}", key=KEY)


def no_type(name: str, types: ClusterTypes) -> KeyFaultError:
    """Why there is no cluster type ``name``: it names a skipped plugin and the reason, or the nearest known type."""
    known = [*dict.fromkeys([*reversed([*own_types()]), *types])]
    skipped = types.skipped(name) if isinstance(types, OfferedTypes) else ()
    for one in (one for one in skipped if one.offers):
        message = f"'{name}' cannot be used: plugin {one.source} is skipped: {one.reason}"
        return KeyFaultError(message, hint="llmb-run plugins list", code="cluster-type-skipped", value=name)
    close = names.nearest(name, known)
    hint = f"did you mean '{close}'?" if close else f"one of {', '.join(known)}; or install the plugin that offers it"
    if skipped and not close:
        these = "; ".join(f"{one.source} ({one.reason})" for one in skipped)
        hint = f"one of {', '.join(known)}; plugins that are skipped may offer it: {these}"
    return KeyFaultError(f"'{name}' is not known", hint=hint, code="cluster-type-unknown", value=name)


def read_section(document: Document, kind: ClusterType | None, *, asks: bool = False) -> SectionRead:
    """The section of a plugin's cluster type; ``asks``: whether keys that are missing are reported by the caller.

    The sections of llmb's own types are fields of ClusterConfig, and stay in the document.
    """
    key = kind.key if kind is not None else None
    own = {field.name for field in fields(ClusterConfig) if "internal" not in field.metadata}
    if kind is None or kind.schema is None or key is None or key in own or not isinstance(document.data, dict):
        return SectionRead(rest=document)
    rest = replace(document, data={name: value for name, value in document.data.items() if name != key})
    try:
        if document.data.get(key) is not None:
            value, faults = typed.read_in_part(kind.schema, document, (key,))
            if asks:
                faults = [fault for fault in faults if fault.code != "key-missing" or fault.key != key]
            if not faults:
                faults = [*_refused(document, kind, document.data[key])]
        else:
            missing = required_fields(kind.schema)
            value = None if missing else kind.schema()
            named = [f"{key}.{name}" for name in missing if not asks]
            faults = [
                Fault(place=document.name, message=f"'{name}' is missing", code="key-missing", key=name)
                for name in named
            ]
    except UsageError:
        raise
    except Exception as error:
        value, faults = None, [failed(kind, f"reading {key}", error, document.place((key,)))]
    return SectionRead(rest=rest, value=value, faults=tuple(faults))


def _refused(document: Document, kind: ClusterType, data: Any) -> list[Fault]:
    """The faults that the questions' checks find in a section."""
    found = []
    for question in kind.questions:
        path = (str(kind.key), *question.key.split("."))
        value = data
        for part in path[1:]:
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None and (why := reason_against(question, value)) is not None:
            text, key = f"{'.'.join(path)}: {why}", ".".join(path)
            found.append(
                Fault(place=document.place(path), message=text, code="value-not-allowed", key=key, value=value)
            )
    return found


def reason_against(question: ClusterQuestion, value: Any) -> str | None:
    """Why the question's check refuses ``value``; None where it does not."""
    why = question.check(value)
    return None if why is None else str(why)


def failed(kind: ClusterType, where: str, error: BaseException, place: str = "") -> Fault:
    """The fault of a cluster type's own code that failed; it names the plugin."""
    message = f"plugin {kind.source or 'llmb'}: cluster type {kind.name} failed {where}: {_described(error)}"
    hint = "report it to the plugin's maintainers"
    return Fault(place=place, message=message, hint=hint, code="plugin-failed", key=kind.name, value=kind.source)


def raised_by(kind: ClusterType, where: str, error: BaseException) -> LlmbError:
    """The error of a cluster type's own code that failed."""
    fault = failed(kind, f"in {where}", error)
    return LlmbError(fault.message, hint=fault.hint, code=fault.code, key=where, value=kind.source)


def _described(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
