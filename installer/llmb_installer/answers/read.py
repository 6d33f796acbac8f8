# SPDX-License-Identifier: Apache-2.0
"""Reads the layers of answers into Answers, reporting every fault at once; and writes Answers to a file."""

import dataclasses
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from llmb.config import ClusterConfig
from llmb.config.own_types import own_types
from llmb.config.reading import read_section
from llmb.config.schema import GpuTypeConfig
from llmb.errors import Fault, InputFaults, UsageError, as_fault
from llmb.text import typed, yamlfile
from llmb.text.names import find_workload_and_size, nearest, squash_workload, suggest
from llmb.workload import gpus, spec
from llmb_installer.answers.layers import joined, missing, nested, value_at, with_layer
from llmb_installer.answers.schema import AUTO, Answers, level_fault
from llmb_installer.cluster_types import all_types, type_in
from llmb_installer.registry.manifests import machine_name

_HOW = "in a terminal, and without --yes, llmb-install asks for missing keys; `llmb-run docs install` lists the keys"
_LONGEST_NAME = 255  # bytes, on every file system that an installation may use
_DEFAULTS = Answers(cluster_type="local", install=Path())
# Valid values, so that the other keys are checked even where a required key is missing.
_SAMPLES = {
    "cluster_type": "local",
    "install": ".",
    "gpu_type": gpus.CPU,
    "runai.base_url": "https://host",
    "runai.project": "p",
    "runai.pvc": {"name": "n", "path": "/p", "claim": "c"},
}

Located = tuple[yamlfile.KeyPath, Fault]


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
    answers = _with_brought(answers, _types(known))
    named = answers.workloads or ()
    keys = dict.fromkeys(name if recorded and _is_unknown(name, known) else _key(name, known) for name in named)
    return replace(
        answers,
        install=answers.install.expanduser().resolve(),
        cluster_name=answers.cluster_name or answers.cluster_type,
        workloads=None if answers.workloads is None else tuple(keys),
    )


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
    faults = [*faults, *section.faults, *early]
    rest = answers if answers is not None else _with_samples(rest_of)
    has_type = answers is not None and "cluster_type" not in absent
    wrong = [
        replace(fault, place=document.place(path), key=".".join(map(str, path)))
        for path, fault in _wrong(rest, known, has_type=has_type, recorded=recorded)
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


def _is_unknown(name: str, known: Mapping[str, spec.Workload]) -> bool:
    """Whether no plugin here offers a workload that an installer has recorded by its key."""
    return squash_workload(name) not in map(squash_workload, known)


def _key(name: str, known: Mapping[str, spec.Workload]) -> str:
    return find_workload_and_size(name, {key: list(workload.sizes) for key, workload in known.items()})[0]


def _wrong(
    answers: Answers | None, known: Mapping[str, spec.Workload], *, has_type: bool, recorded: bool
) -> Iterator[Located]:
    """The faults of values that have the right type; with ``has_type`` also those that depend on the cluster type."""
    if answers is None:
        return
    checks: list[Callable[[Answers], Iterator[Located]]] = [_wrong_folders, _wrong_images]
    yield from _wrong_gpus(answers, _types(known))
    for check in [*checks, _wrong_for_type] if has_type else checks:
        yield from check(answers)
    for index, name in enumerate(answers.workloads or ()):
        path = ("workloads", index)
        if "," in name:
            hint = f"write a list: [{name}]"
            yield path, Fault(message=f"'{name}' is one name", hint=hint, code="workloads-not-list", value=name)
            continue
        try:
            _key(name, known)
        except UsageError as error:
            if not (recorded and _is_unknown(name, known)):
                yield path, as_fault(error)


def _at(key: str, message: str, hint: str, code: str, value: object = None) -> Located:
    """A fault at a dotted key."""
    return tuple(key.split(".")), Fault(message=message, hint=hint, code=code, value=value)


def _types(known: Mapping[str, spec.Workload]) -> gpus.GpuTypes:
    """Every known GPU type, those of plugins included."""
    return gpus.all_types(workload.gpu_types for workload in known.values())


def _with_brought(answers: Answers, types: gpus.GpuTypes) -> Answers:
    """The answers with the numbers of GPU types that plugins bring: the configuration does not depend on plugins."""
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


def _wrong_gpus(answers: Answers, types: gpus.GpuTypes) -> Iterator[Located]:
    try:
        ClusterConfig(cluster_type=answers.cluster_type, gpu_type=gpus.CPU, gpu_types=answers.gpu_types, types=types)
    except typed.KeyFaultError as error:
        message = f"{'.'.join(map(str, error.path))}: {error}"
        yield error.path, Fault(message=message, hint=error.hint, code="gpu-types-invalid")
    name, names = answers.gpu_type, [AUTO, *types, *answers.gpu_types]
    if name not in names:
        hint = f"{suggest(name, names)}  'gpu_types: {{{name}: {{like: TYPE}}}}' adds one"
        yield _at("gpu_type", f"gpu_type '{name}' is unknown", hint, "gpu-type-unknown", name)
    if answers.traits.nodes == "answers" and name == AUTO:
        hint = f"one of {', '.join(types)}"
        message = f"gpu_type cannot be detected on {answers.of_type.shown}; set it"
        yield _at("gpu_type", message, hint, "gpu-type-undetected")


def _wrong_folders(answers: Answers) -> Iterator[Located]:
    for key in ("install", "experiments_root", "image_folder", "wheelhouse"):
        folder = getattr(answers, key)
        if folder is not None and (found := _folder_fault(key, folder)) is not None:
            code, message, hint = found
            yield _at(key, f"{key}: {message}", hint, code, str(folder))


def _folder_fault(key: str, folder: Path) -> tuple[str, str, str] | None:
    """Code, message and hint for a folder that cannot be used as ``key``; None for one that can."""
    if "$" in str(folder):
        return "folder-variable", f"variables are not expanded in {folder}", "write the full path"
    if (reason := unusable_in(str(folder))) is not None:
        shown = str(folder) if str(folder).isprintable() else repr(str(folder))
        return "folder-unusable", f"{shown} cannot be used: {reason}", "choose another folder"
    if key != "install" and not folder.is_absolute():
        return "folder-relative", f"{folder} is not an absolute path", "start it with / or ~"
    if key != "wheelhouse" and (file := _file_at(folder.expanduser())) is not None:
        return "folder-is-file", f"{folder} cannot be a folder: {file} is a file", "choose another folder"
    return None


def unusable_in(folder: str) -> str | None:
    """Why environments or mounts cannot use a folder of this name; None where they can."""
    if ":" in folder:
        return "':' separates folders in PATH and in mounts"
    if any(len(part.encode("utf-8", "surrogateescape")) > _LONGEST_NAME for part in folder.split("/")):
        return f"a name in it is longer than {_LONGEST_NAME} bytes"
    return None if folder.isprintable() else "it has an unprintable character"


def _file_at(folder: Path) -> Path | None:
    """The file at ``folder`` or at one of its parents."""
    try:
        nearest_path = next(path for path in (folder, *folder.parents) if path.exists())
        return None if nearest_path.is_dir() else nearest_path
    except OSError:  # reported when the folder is used
        return None


def _wrong_images(answers: Answers) -> Iterator[Located]:
    images = answers.images
    if images.processors is not None and images.processors < 1:
        message = f"images.processors: {images.processors} is less than 1"
        yield _at("images.processors", message, "omit it to use all", "processors-invalid", images.processors)
    if images.level is not None and (reason := level_fault(images.compression, images.level)) is not None:
        hint = "omit it to use the default"
        yield _at("images.level", f"images.level: {reason}", hint, "level-invalid", images.level)


def _wrong_for_type(answers: Answers) -> Iterator[Located]:
    traits, machine = answers.traits, platform.machine()
    for other in own_types().values():
        if other.key is not None and other.key != answers.of_type.key and getattr(answers, other.key) is not None:
            message = f"{other.key} is for cluster_type {other.name}, but cluster_type is {answers.cluster_type}"
            yield _at(other.key, message, f"omit {other.key}", "section-misplaced")
    if answers.method != "here" and not traits.sbatch_options:
        message = f"method {answers.method} is for cluster_type slurm"
        yield _at("method", message, "omit it, or write 'here'", "method-misplaced", answers.method)
    if traits.nodes == "this-machine" and answers.node_architecture not in (AUTO, machine):
        message = f"node_architecture: a local installation is for this machine, which is {machine}"
        hint = f"omit it, or install on a machine of type {answers.node_architecture}"
        yield _at("node_architecture", message, hint, "architecture-not-local")
    if traits.sbatch_options and answers.gpu_type == gpus.CPU and answers.uses_images:
        message = "there are no container images for gpu_type cpu"
        yield _at("gpu_type", message, "add 'slurm: {container: none}'", "cpu-without-images")


def to_yaml(answers: Answers) -> str:
    """The text of an answers file: the answers that differ from the defaults."""
    data, defaults = typed.to_data(answers), typed.to_data(_DEFAULTS)
    kept = {"cluster_type", "install", "versions"}
    data |= sections_of(answers)
    data["gpu_types"] = {name: without_nulls(own) for name, own in data["gpu_types"].items()}
    different = {key: without_nulls(value) for key, value in data.items() if key in kept or value != defaults.get(key)}
    text: str = yaml.safe_dump(different, sort_keys=False, allow_unicode=True)
    return "# SPDX-License-Identifier: Apache-2.0\n# Answers for llmb-install --config.\n" + text


def sections_of(given: Answers | ClusterConfig) -> dict[str, Any]:
    """The sections of cluster types by their keys, as the types want them written; without those that are unset."""
    kinds = {kind.key: kind for kind in own_types().values() if kind.key is not None}
    found = {key: (kind, getattr(given, key)) for key, kind in kinds.items()}
    if (key := given.of_type.key) is not None and key not in found:
        found[key] = given.of_type, given.own_section
    data = {
        key: without_nulls(typed.to_data(own)) if kind.writes_defaults else lean(own)
        for key, (kind, own) in found.items()
        if own is not None
    }
    return {key: own for key, own in data.items() if own != {} or key not in kinds}


def lean(value: Any) -> Any:
    """A section as data with only the values that differ from the defaults, at every level."""
    if not dataclasses.is_dataclass(value) or hasattr(value, "unparse"):
        return typed.to_data(value)
    found = {}
    for field in dataclasses.fields(value):
        own = getattr(value, field.name)
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if own != default:
            found[field.name] = lean(own)
    return found


def without_nulls(value: Any) -> Any:
    """A mapping without its keys that are null or an empty mapping; another value as it is."""
    return value if not isinstance(value, dict) else {k: v for k, v in value.items() if v is not None and v != {}}
