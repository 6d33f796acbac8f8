# SPDX-License-Identifier: Apache-2.0
"""Reads the layers of answers into Answers, reporting every fault at once."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmb.contract import gpus, spec
from llmb.contract.schema import GpuTypeConfig
from llmb.core import files, typed, yamlfile
from llmb.core.names import nearest
from llmb.errors import Fault, InputFaults
from llmb.plan.read_config import read_sections, with_section_hints
from llmb_installer.answers.checks import (
    check_values,
    collect_gpu_types,
    find_key,
    find_misplaced_sections,
    is_unknown,
)
from llmb_installer.answers.layers import find_missing_keys, get_value, join, nest, override
from llmb_installer.answers.schema import Answers
from llmb_installer.cluster_types import all_types, type_in, type_named
from sqshpull.manifests import machine_name

_HOW = (
    "set them with --config FILE or --set KEY=VALUE, or run llmb-install in a terminal, without"
    " --yes; `llmb-run docs install` lists the keys"
)
# Valid values, so that the other keys are checked even where a required key is missing.
_SAMPLES = {
    "cluster_type": "local",
    "install": ".",
    "gpu_type": gpus.CPU,
}


def read_answers(
    document: yamlfile.Document,
    *,
    install: Path | None = None,
    workloads: Mapping[str, spec.Workload],
    recorded: bool = False,
) -> Answers:
    """Return the answers in ``document``, overridden by ``--install``.

    The folder is absolute, and workloads have their keys. A workload may be named with a size, as
    all its sizes are installed together. ``recorded`` answers may have no workloads, after all were
    removed, and workloads that no plugin offers any more. Raises InputFaults with the place and fix
    of every fault, missing keys included.
    """
    if install is not None:
        document = override(document, {"install": str(install)}, "--install")
    answers, absent, faults = _examine(document, workloads, recorded=recorded)
    if answers is not None and answers.workloads == () and not recorded:
        faults.append(
            Fault(
                place=document.place(("workloads",)),
                message="workloads is empty",
                hint="name at least one, or omit the key to install all",
                code="workloads-empty",
                key="workloads",
            )
        )
    missing_keys = [
        Fault(place=document.name, message=f"'{key}' is missing", code="key-missing", key=key)
        for key in absent
    ]
    if missing_keys or faults or answers is None:
        raise InputFaults(missing_keys + faults, hint=_HOW if absent else None)
    answers = _with_types_of_plugins(answers, collect_gpu_types(workloads))
    named = answers.workloads or ()
    keys = dict.fromkeys(
        name if recorded and is_unknown(name, workloads) else find_key(name, workloads)
        for name in named
    )
    return replace(
        answers,
        install=files.expand(answers.install).resolve(),
        cluster_name=answers.cluster_name or answers.cluster_type,
        workloads=None if answers.workloads is None else tuple(keys),
    )


def _with_types_of_plugins(answers: Answers, types: gpus.GpuTypes) -> Answers:
    """Add numbers of plugins' GPU types, as the configuration must not depend on plugins."""
    added = {}
    for name in (answers.gpu_type, *answers.gpu_types):
        settings, kind = answers.gpu_types.get(name, GpuTypeConfig()), types.get(name)
        if kind is None or name in gpus.known_types() or settings.like is not None:
            continue
        added[name] = replace(
            settings,
            gpus_per_node=settings.gpus_per_node or kind.gpus_per_node,
            peak_tflops=kind.peak_tflops if settings.peak_tflops is None else settings.peak_tflops,
            memory_gb=kind.memory_gb if settings.memory_gb is None else settings.memory_gb,
        )
    return replace(answers, gpu_types={**answers.gpu_types, **added}) if added else answers


def require_valid(document: yamlfile.Document, workloads: Mapping[str, spec.Workload]) -> None:
    """Raise InputFaults with the faults so far, before the first question.

    Missing keys are none.
    """
    if faults := _examine(document, workloads)[2]:
        raise InputFaults(faults)


def _examine(
    document: yamlfile.Document, workloads: Mapping[str, spec.Workload], *, recorded: bool = False
) -> tuple[Answers | None, list[str], list[Fault]]:
    """The answers if they can be read, the missing keys, and every fault of the other keys."""
    document = _with_machine_name(document)
    absent = find_missing_keys(document.data) if isinstance(document.data, dict) else []
    kind = type_in(document.data)
    read = read_sections(document, kind, all_types, asks=True)
    rest_of = read.rest
    answers, faults = typed.read_in_part(
        Answers,
        _filled(rest_of, absent),
        kind=kind or type_named(_SAMPLES["cluster_type"]),
        sections=read.sections,
    )
    faults = with_section_hints(faults, all_types(), Answers)
    misplaced = dict(find_misplaced_sections(document, kind)) if kind is not None else {}
    faults = [fault for fault in [*faults, *read.faults] if (_first(fault),) not in misplaced]
    readable = answers if answers is not None else _with_samples(rest_of)
    has_type = answers is not None and "cluster_type" not in absent
    value_faults = [
        replace(fault, place=document.place(path), key=".".join(map(str, path)))
        for path, fault in [
            *misplaced.items(),
            *(
                check_values(
                    readable, workloads, _broken(faults), has_type=has_type, recorded=recorded
                )
                if readable is not None
                else ()
            ),
        ]
    ]
    absent = [key for key in absent if not _is_misspelt(key, document.data)]
    return answers, absent, [*document.faults, *faults, *value_faults]


def _filled(document: yamlfile.Document, absent: list[str]) -> yamlfile.Document:
    """Return ``document`` with a sample for each missing key."""
    data = document.data
    for key in [key for key in absent if key in _SAMPLES]:
        data = join(data, nest(key, _SAMPLES[key]))
    return replace(document, data=data)


def _with_samples(document: yamlfile.Document) -> Answers | None:
    """Read the other keys of answers with an invalid cluster type or folder, to check them too."""
    if not isinstance(document.data, dict):
        return None
    data = {**document.data, "cluster_type": _SAMPLES["cluster_type"]}
    if not isinstance(data.get("install"), str):
        data["install"] = _SAMPLES["install"]
    kind = type_named(data["cluster_type"])
    return typed.read_in_part(Answers, replace(document, data=data), kind=kind)[0]


def _is_misspelt(key: str, data: Any) -> bool:
    """Return True if an unknown key of ``data`` most likely means ``key``, as its fault says."""
    section, _, name = key.rpartition(".")
    container = get_value(data, section) if section else data
    written = container if isinstance(container, dict) else {}
    kind = type_in(data)
    schema = kind.schema if section and kind is not None and kind.schema is not None else Answers
    names = [field.name for field in dataclasses.fields(schema)]
    return any(
        nearest(str(written_key), names) == name
        for written_key in written
        if written_key not in names
    )


def _with_machine_name(document: yamlfile.Document) -> yamlfile.Document:
    """Replace a registry's name of an architecture, such as arm64, by the machine's name."""
    data, key = document.data, "node_architecture"
    architecture = data.get(key) if isinstance(data, dict) else None
    if not isinstance(architecture, str) or architecture.lower() not in ("amd64", "arm64"):
        return document
    return replace(document, data={**data, key: machine_name(architecture)})


def _first(fault: Fault) -> str:
    return fault.key.partition(".")[0]


def _broken(faults: Iterable[Fault]) -> set[str]:
    """The first parts of keys with faults or misspellings: their values are only defaults."""
    names = [field.name for field in dataclasses.fields(Answers)]
    names += [kind.key for kind in all_types().values() if kind.key is not None]
    broken = {_first(fault) for fault in faults}
    return broken | {
        near for name in broken if name not in names and (near := nearest(name, names)) is not None
    }
