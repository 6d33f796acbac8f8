# SPDX-License-Identifier: Apache-2.0
"""Reads the layers of answers into Answers, reporting every fault at once."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmb.config.reading import read_section
from llmb.config.schema import GpuTypeConfig
from llmb.errors import Fault, InputFaults
from llmb.system import files
from llmb.text import typed, yamlfile
from llmb.text.names import nearest
from llmb.workload import gpus, spec
from llmb_installer.answers.checks import faults_in, gpu_types_of, is_unknown, key_of, misplaced_sections
from llmb_installer.answers.layers import joined, missing, nested, value_at, with_layer
from llmb_installer.answers.schema import Answers
from llmb_installer.cluster_types import all_types, type_in
from llmb_installer.registry.manifests import machine_name

_HOW = (
    "set them with --config FILE or --set KEY=VALUE, or run llmb-install in a terminal, without --yes; "
    "`llmb-run docs install` lists the keys"
)
# Valid values, so that the other keys are checked even where a required key is missing.
_SAMPLES = {
    "cluster_type": "local",
    "install": ".",
    "gpu_type": gpus.CPU,
    "runai.base_url": "https://host",
    "runai.project": "p",
    "runai.pvc": {"name": "n", "path": "/p", "claim": "c"},
}


def read_answers(
    document: yamlfile.Document,
    *,
    install: Path | None = None,
    known: Mapping[str, spec.Workload],
    recorded: bool = False,
) -> Answers:
    """The answers in ``document``, overridden by ``--install``; the folder absolute, workloads by their keys.

    A workload may be named with a size, as all its sizes are installed together. ``recorded`` answers may have no
    workloads, after all were removed, and workloads that no plugin offers any more. Raises InputFaults with the place
    and fix of every fault, missing keys included.
    """
    if install is not None:
        document = with_layer(document, {"install": str(install)}, "--install")
    answers, absent, faults = _examine(document, known, recorded=recorded)
    if answers is not None and answers.workloads == () and not recorded:
        hint = "name at least one, or omit the key to install all"
        place = document.place(("workloads",))
        faults.append(
            Fault(place=place, message="workloads is empty", hint=hint, code="workloads-empty", key="workloads")
        )
    missing_keys = [
        Fault(place=document.name, message=f"'{key}' is missing", code="key-missing", key=key) for key in absent
    ]
    if missing_keys or faults or answers is None:
        raise InputFaults(missing_keys + faults, hint=_HOW if absent else None)
    answers = _with_types_of_plugins(answers, gpu_types_of(known))
    named = answers.workloads or ()
    keys = dict.fromkeys(name if recorded and is_unknown(name, known) else key_of(name, known) for name in named)
    return replace(
        answers,
        install=files.expand(answers.install).resolve(),
        cluster_name=answers.cluster_name or answers.cluster_type,
        workloads=None if answers.workloads is None else tuple(keys),
    )


def _with_types_of_plugins(answers: Answers, types: gpus.GpuTypes) -> Answers:
    """With the numbers of the GPU types that plugins bring, so that the configuration does not depend on plugins."""
    added = {}
    for name in (answers.gpu_type, *answers.gpu_types):
        own, kind = answers.gpu_types.get(name, GpuTypeConfig()), types.get(name)
        if kind is None or name in gpus.known_types() or own.like is not None:
            continue
        added[name] = replace(
            own,
            gpus_per_node=own.gpus_per_node or kind.gpus_per_node,
            peak_tflops=kind.peak_tflops if own.peak_tflops is None else own.peak_tflops,
            memory_gb=kind.memory_gb if own.memory_gb is None else own.memory_gb,
        )
    return replace(answers, gpu_types={**answers.gpu_types, **added}) if added else answers


def require_valid(document: yamlfile.Document, known: Mapping[str, spec.Workload]) -> None:
    """Raise InputFaults with every fault of the layers so far, ignoring missing keys: before the first question."""
    if faults := _examine(document, known)[2]:
        raise InputFaults(faults)


def _examine(
    document: yamlfile.Document, known: Mapping[str, spec.Workload], *, recorded: bool = False
) -> tuple[Answers | None, list[str], list[Fault]]:
    """The answers if they can be read, the missing keys, and every fault of the other keys."""
    document = _with_machine_name(document)
    absent = missing(document.data) if isinstance(document.data, dict) else []
    kind = type_in(document.data)
    section = read_section(document, kind, asks=True)
    rest_of, early = (section.rest, []) if kind is not None else _without_sections(document)
    answers, faults = typed.read_in_part(Answers, _filled(rest_of, absent), kind=kind, own_section=section.value)
    misplaced = dict(misplaced_sections(document, kind)) if kind is not None else {}
    faults = [fault for fault in [*faults, *section.faults, *early] if (_first(fault),) not in misplaced]
    rest = answers if answers is not None else _with_samples(rest_of)
    has_type = answers is not None and "cluster_type" not in absent
    wrong = [
        replace(fault, place=document.place(path), key=".".join(map(str, path)))
        for path, fault in [
            *misplaced.items(),
            *(
                faults_in(rest, known, _broken(faults), has_type=has_type, recorded=recorded)
                if rest is not None
                else ()
            ),
        ]
    ]
    absent = [key for key in absent if not _is_misspelt(key, document.data)]
    return answers, absent, [*document.faults, *faults, *wrong]


def _without_sections(document: yamlfile.Document) -> tuple[yamlfile.Document, list[Fault]]:
    """Answers that do not name their cluster type yet, without the sections of plugins' types; and their faults."""
    faults: list[Fault] = []
    names = {field.name for field in dataclasses.fields(Answers)}
    if isinstance(document.data, dict) and "cluster_type" not in document.data and {*document.data} - names:
        for kind in all_types().values():
            if kind.key in document.data:
                section = read_section(document, kind, asks=True)
                document = section.rest
                faults += section.faults
    return document, faults


def _filled(document: yamlfile.Document, absent: list[str]) -> yamlfile.Document:
    """``document`` with a sample for each missing key whose section is valid."""
    data = document.data
    for key in [key for key in absent if key in _SAMPLES]:
        section = key.rpartition(".")[0]
        if not section or value_at(data, section) is None or isinstance(value_at(data, section), dict):
            data = joined(data, nested(key, _SAMPLES[key]))
    return replace(document, data=data)


def _with_samples(document: yamlfile.Document) -> Answers | None:
    """What can be read where cluster type or folder are invalid, so that the other keys are checked too."""
    if not isinstance(document.data, dict):
        return None
    data = {**document.data, "cluster_type": _SAMPLES["cluster_type"]}
    if not isinstance(data.get("install"), str):
        data["install"] = _SAMPLES["install"]
    return typed.read_in_part(Answers, replace(document, data=data))[0]


def _is_misspelt(key: str, data: Any) -> bool:
    """Whether an unknown key of ``data`` was most likely meant to be ``key``: its fault already names ``key``."""
    section, _, name = key.rpartition(".")
    found = value_at(data, section) if section else data
    written = found if isinstance(found, dict) else {}
    kind = type_in(data)
    schema = kind.schema if section and kind is not None and kind.schema is not None else Answers
    names = [field.name for field in dataclasses.fields(schema)]
    return any(nearest(str(one), names) == name for one in written if one not in names)


def _with_machine_name(document: yamlfile.Document) -> yamlfile.Document:
    """``document`` with the machine's name of an architecture that has a registry's name, such as arm64."""
    data, key = document.data, "node_architecture"
    given = data.get(key) if isinstance(data, dict) else None
    if not isinstance(given, str) or given.lower() not in ("amd64", "arm64"):
        return document
    return replace(document, data={**data, key: machine_name(given)})


def _first(fault: Fault) -> str:
    return fault.key.partition(".")[0]


def _broken(faults: Iterable[Fault]) -> set[str]:
    """The first parts of the keys that have faults or are misspelt: what was read has their defaults."""
    names, broken = [field.name for field in dataclasses.fields(Answers)], {_first(fault) for fault in faults}
    return broken | {near for name in broken if name not in names and (near := nearest(name, names)) is not None}
