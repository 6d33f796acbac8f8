# SPDX-License-Identifier: Apache-2.0
"""Checks values of answers that have the right type: workloads, GPU types, folders, images, the cluster type's keys."""

import platform
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from llmb.config import ClusterConfig
from llmb.config.cluster_type import ClusterType
from llmb.config.own_types import own_types
from llmb.errors import Fault, UsageError, as_fault
from llmb.system import files
from llmb.text import typed, yamlfile
from llmb.text.names import find_workload_and_size, squash_workload, suggest
from llmb.workload import gpus, spec
from llmb_installer.answers.layers import value_at
from llmb_installer.answers.schema import AUTO, Answers, level_fault

_LONGEST_NAME = 255  # bytes, on every file system that an installation may use
Located = tuple[yamlfile.KeyPath, Fault]


def is_unknown(name: str, known: Mapping[str, spec.Workload]) -> bool:
    """Whether no plugin here offers a workload that an installer has recorded by its key."""
    return squash_workload(name) not in map(squash_workload, known)


def key_of(name: str, known: Mapping[str, spec.Workload]) -> str:
    """The key of the workload that ``name`` means, with a size or without. Raises UsageError."""
    return find_workload_and_size(name, {key: list(workload.sizes) for key, workload in known.items()})[0]


def gpu_types_of(known: Mapping[str, spec.Workload]) -> gpus.GpuTypes:
    """Every known GPU type, those of plugins included."""
    return gpus.all_types(workload.gpu_types for workload in known.values())


def faults_in(
    answers: Answers,
    known: Mapping[str, spec.Workload],
    broken: Collection[str],
    *,
    has_type: bool,
    recorded: bool,
) -> Iterator[Located]:
    """The faults of ``answers``, ``known`` being the workloads; without ``has_type`` none that depend on its type.

    ``broken``: the keys whose values could not be read, so that nothing follows from their defaults. ``recorded``
    answers may name workloads that no plugin offers any more.
    """
    for path, fault in _wrong_gpus(answers, gpu_types_of(known)):
        if not (fault.code == "gpu-type-unknown" and "gpu_types" in broken):
            yield path, fault
    yield from _wrong_folders(answers)
    if "images" not in broken:
        yield from _wrong_images(answers)
    if has_type and answers.of_type.key not in broken:
        yield from _wrong_for_type(answers)
    for index, name in enumerate(answers.workloads or ()):
        path = ("workloads", index)
        if "," in name:
            hint = f"write a list: [{name}]"
            yield path, Fault(message=f"'{name}' is one name", hint=hint, code="workloads-not-list", value=name)
            continue
        try:
            key_of(name, known)
        except UsageError as error:
            if not (recorded and is_unknown(name, known)):
                yield path, as_fault(error)


def _at(key: str, message: str, hint: str, code: str, value: object = None) -> Located:
    return tuple(key.split(".")), Fault(message=message, hint=hint, code=code, value=value)


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
    if key != "wheelhouse" and (file := _file_at(files.expand(folder))) is not None:
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


def misplaced_sections(document: yamlfile.Document, kind: ClusterType) -> Iterator[Located]:
    """A fault for each section of another of llmb's cluster types than ``kind``."""
    for other in own_types().values():
        if other.key is not None and other.key != kind.key and value_at(document.data, other.key) is not None:
            message = f"{other.key} is for cluster_type {other.name}, but cluster_type is {kind.name}"
            yield _at(other.key, message, f"omit {other.key}", "section-misplaced")


def _wrong_for_type(answers: Answers) -> Iterator[Located]:
    traits, machine = answers.traits, platform.machine()
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
