# SPDX-License-Identifier: Apache-2.0
"""Checks values of answers that have the right type, such as folders and GPU types."""

import platform
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from llmb.contract import gpus, spec
from llmb.contract.cluster_type import ClusterType
from llmb.contract.schema import ClusterConfig
from llmb.core import files, typed, yamlfile
from llmb.core.names import find_workload_and_size, squash_workload, suggest
from llmb.errors import Fault, UsageError, as_fault
from llmb_installer.answers.layers import get_value
from llmb_installer.answers.schema import AUTO, Answers
from llmb_installer.cluster_types import all_types
from sqshpull.settings import level_fault

_LONGEST_NAME = 255  # bytes, on every file system that an installation may use
Located = tuple[yamlfile.KeyPath, Fault]


def is_unknown(name: str, workloads: Mapping[str, spec.Workload]) -> bool:
    """Return True if no plugin here offers a workload that an installer has recorded by its key."""
    return squash_workload(name) not in map(squash_workload, workloads)


def find_key(name: str, workloads: Mapping[str, spec.Workload]) -> str:
    """The key of the workload that ``name`` means, with a size or without. Raises UsageError."""
    return find_workload_and_size(
        name, {key: workload.sizes for key, workload in workloads.items()}
    )[0]


def collect_gpu_types(workloads: Mapping[str, spec.Workload]) -> gpus.GpuTypes:
    """Return every known GPU type, also of plugins."""
    return gpus.all_types(workload.gpu_types for workload in workloads.values())


def check_values(
    answers: Answers,
    workloads: Mapping[str, spec.Workload],
    broken: Collection[str],
    *,
    has_type: bool,
    recorded: bool,
) -> Iterator[Located]:
    """Yield the faults of ``answers``, also those of its cluster type if ``has_type``.

    ``broken``: the keys whose values could not be read, so that nothing follows from their
    defaults. ``recorded`` answers may name workloads that no plugin offers any more.
    """
    for path, fault in _wrong_gpus(answers, collect_gpu_types(workloads)):
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
            yield (
                path,
                Fault(
                    message=f"'{name}' is one name",
                    hint=f"write a list: [{name}]",
                    code="workloads-not-list",
                    value=name,
                ),
            )
            continue
        try:
            find_key(name, workloads)
        except UsageError as error:
            if not (recorded and is_unknown(name, workloads)):
                yield path, as_fault(error)


def _at(key: str, message: str, hint: str, code: str, value: object = None) -> Located:
    return tuple(key.split(".")), Fault(message=message, hint=hint, code=code, value=value)


def _wrong_gpus(answers: Answers, types: gpus.GpuTypes) -> Iterator[Located]:
    try:
        ClusterConfig(
            cluster_type=answers.cluster_type,
            gpu_type=gpus.CPU,
            gpu_types=answers.gpu_types,
            types=types,
        )
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
        if folder is not None and (fault := _folder_fault(key, folder)) is not None:
            code, message, hint = fault
            yield _at(key, f"{key}: {message}", hint, code, str(folder))


def _folder_fault(key: str, folder: Path) -> tuple[str, str, str] | None:
    """Code, message and hint for a folder that cannot be used as ``key``. None for one that can."""
    if "$" in str(folder):
        return "folder-variable", f"variables are not expanded in {folder}", "write the full path"
    if (reason := explain_unusable(str(folder))) is not None:
        shown = str(folder) if str(folder).isprintable() else repr(str(folder))
        return "folder-unusable", f"{shown} cannot be used: {reason}", "choose another folder"
    if key != "install" and not folder.is_absolute():
        return "folder-relative", f"{folder} is not an absolute path", "start it with / or ~"
    if key != "wheelhouse" and (file := _file_at(files.expand(folder))) is not None:
        return (
            "folder-is-file",
            f"{folder} cannot be a folder: {file} is a file",
            "choose another folder",
        )
    return None


def explain_unusable(folder: str) -> str | None:
    """Return why environments or mounts cannot use a folder of this name, or None."""
    if ":" in folder:
        return "':' separates folders in PATH and in mounts"
    if any(
        len(part.encode("utf-8", "surrogateescape")) > _LONGEST_NAME for part in folder.split("/")
    ):
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
        yield _at(
            "images.processors",
            f"images.processors: {images.processors} is less than 1",
            "omit it to use all",
            "processors-invalid",
            images.processors,
        )
    if (
        images.level is not None
        and (reason := level_fault(images.compression, images.level)) is not None
    ):
        hint = "omit it to use the default"
        yield _at("images.level", f"images.level: {reason}", hint, "level-invalid", images.level)


def find_misplaced_sections(document: yamlfile.Document, kind: ClusterType) -> Iterator[Located]:
    """Yield a fault for each section of another cluster type than ``kind``."""
    for cluster_type in all_types().values():
        if (
            cluster_type.key is not None
            and cluster_type.key != kind.key
            and get_value(document.data, cluster_type.key) is not None
        ):
            message = (
                f"{cluster_type.key} is for cluster_type {cluster_type.name}, but cluster_type is"
                f" {kind.name}"
            )
            yield _at(cluster_type.key, message, f"omit {cluster_type.key}", "section-misplaced")


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
