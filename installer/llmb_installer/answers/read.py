# SPDX-License-Identifier: Apache-2.0
"""Turns the layers of answers into Answers, with every fault at once; and Answers back into a file."""

import dataclasses
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from llmb.config import ClusterConfig
from llmb.errors import Fault, InputFaults, UsageError
from llmb.text import typed
from llmb.text.names import find_workload_and_size, squash_workload, suggest
from llmb.text.yamlfile import Document, KeyPath
from llmb.workload.gpus import CPU, known_types
from llmb.workload.spec import Workload
from llmb_installer.answers.layers import missing, with_layer
from llmb_installer.answers.schema import AUTO, Answers
from llmb_installer.answers.words import level_fault
from llmb_installer.registry.manifests import machine_name

_HOW = "in a terminal, and without --yes, llmb-install asks for what is missing; docs/install.md lists the keys"
_LONGEST_NAME = 255  # bytes, of every file system that an installation lies on
_ARCHITECTURE = "node_architecture"
_SAMPLE = Answers(cluster_type="local", install=Path())


def read_answers(
    document: Document, *, install: Path | None = None, known: Mapping[str, Workload], recorded: bool = False
) -> Answers:
    """The answers in ``document`` with ``--install`` over them; the folder absolute, workloads by their keys.

    A workload may be named with a size behind it: all its sizes are installed together. ``recorded`` answers may name
    none, where all were removed, and some that no plugin offers any more. Raises InputFaults with every fault's place
    and fix; a missing key is one.
    """
    if install is not None:
        document = with_layer(document, {"install": str(install)}, "--install")
    answers, absent, faults = _look_through(document, known, recorded=recorded)
    if answers is not None and answers.workloads == () and not recorded:
        hint = "name one, or leave the key out for all"
        faults.append(Fault(place=document.place(("workloads",)), message="workloads is empty", hint=hint))
    faults = [Fault(place=document.name, message=f"'{key}' is missing") for key in absent] + faults
    if faults or answers is None:
        raise InputFaults(faults, hint=_HOW if absent else None)
    named = answers.workloads or ()
    keys = dict.fromkeys(name if recorded and _is_unknown(name, known) else _key(name, known) for name in named)
    return replace(
        answers,
        install=answers.install.expanduser().resolve(),
        cluster_name=answers.cluster_name or answers.cluster_type,
        workloads=None if answers.workloads is None else tuple(keys),
    )


def require_sound(document: Document, known: Mapping[str, Workload]) -> None:
    """Raise InputFaults with all that is wrong in the layers so far, whatever is missing: before anything is asked."""
    if faults := _look_through(document, known)[2]:
        raise InputFaults(faults)


def _look_through(
    document: Document, known: Mapping[str, Workload], *, recorded: bool = False
) -> tuple[Answers | None, list[str], list[Fault]]:
    """The answers if they can be read, the keys that are missing, and every fault of those that are there."""
    document = _in_our_words(document)
    absent = missing(document.data) if isinstance(document.data, dict) else []
    answers, faults = typed.read_in_part(Answers, document)
    faults = [fault for fault in faults if not any(_tells(fault, key) for key in absent)]
    absent = [key for key in absent if not any(f"did you mean '{key}'?" in f"{fault}{fault.hint}" for fault in faults)]
    rest = answers if answers is not None else _the_rest(document)
    wrong = [
        Fault(place=document.place(path), message=text, hint=fix)
        for path, text, fix in _wrong(rest, known, mixed=answers is not None, recorded=recorded)
    ]
    return answers, absent, [*document.faults, *faults, *wrong]


def _the_rest(document: Document) -> Answers | None:
    """What can be read beside the cluster type and the folder, which are missing or wrong: it is looked at as well."""
    if not isinstance(document.data, dict):
        return None
    data = {**document.data, "cluster_type": _SAMPLE.cluster_type}
    if not isinstance(data.get("install"), str):
        data["install"] = str(_SAMPLE.install)
    return typed.read_in_part(Answers, replace(document, data=data))[0]


def _in_our_words(document: Document) -> Document:
    """The answers with the nodes' architecture as machines call it, where it was given as registries do: arm64."""
    data = document.data
    given = data.get(_ARCHITECTURE) if isinstance(data, dict) else None
    if not isinstance(given, str) or given.lower() not in ("amd64", "arm64"):
        return document
    return replace(document, data={**data, _ARCHITECTURE: machine_name(given)})


def _tells(fault: Fault, key: str) -> bool:
    """Whether ``fault`` is the reader's own word for the missing ``key``."""
    return fault.message.endswith(f"'{key.rpartition('.')[2]}' is missing")


def _is_unknown(name: str, known: Mapping[str, Workload]) -> bool:
    """Whether no plugin here offers what an installer has noted by its key."""
    return squash_workload(name) not in map(squash_workload, known)


def _key(name: str, known: Mapping[str, Workload]) -> str:
    return find_workload_and_size(name, {key: list(workload.sizes) for key, workload in known.items()})[0]


Wrong = tuple[KeyPath, str, str | None]


def _wrong(answers: Answers | None, known: Mapping[str, Workload], *, mixed: bool, recorded: bool) -> Iterator[Wrong]:
    """What is of the right type and yet cannot be: where, what, and the fix; ``mixed``: for its cluster type too."""
    if answers is None:
        return
    checks: list[Callable[[Answers], Iterator[Wrong]]] = [_wrong_gpus, _wrong_places, _wrong_images]
    for check in [*checks, _wrong_mix] if mixed else checks:
        yield from check(answers)
    for index, name in enumerate(answers.workloads or ()):
        if "," in name:
            yield ("workloads", index), f"'{name}' is one text", f"write a list: [{name}]"
            continue
        try:
            _key(name, known)
        except UsageError as error:
            if recorded and _is_unknown(name, known):
                continue
            yield ("workloads", index), error.message, error.hint


def _wrong_gpus(answers: Answers) -> Iterator[Wrong]:
    try:
        ClusterConfig(cluster_type=answers.cluster_type, gpu_type=CPU, gpu_types=answers.gpu_types)
    except typed.KeyFaultError as error:
        yield error.path, f"{'.'.join(map(str, error.path))}: {error}", error.hint
    gpus = [AUTO, *known_types(), *answers.gpu_types]
    if answers.gpu_type not in gpus:
        hint = f"{suggest(answers.gpu_type, gpus)}  'gpu_types: {{{answers.gpu_type}: {{like: TYPE}}}}' adds one"
        yield ("gpu_type",), f"gpu_type '{answers.gpu_type}' is not known", hint
    if answers.cluster_type == "runai" and answers.gpu_type == AUTO:
        yield ("gpu_type",), "gpu_type auto: Run:ai does not tell it", f"one of {', '.join(known_types())}"


def _wrong_places(answers: Answers) -> Iterator[Wrong]:
    for key in ("install", "experiments_root", "image_folder", "wheelhouse"):
        folder = getattr(answers, key)
        if folder is not None and "$" in str(folder):
            yield (key,), f"{key}: variables are not replaced in {folder}", "write the folder out"
        elif folder is not None and (odd := unusable_in(str(folder))) is not None:
            yield (key,), f"{key}: {folder!s} cannot be used: {odd}", "name another folder"
        elif folder is not None and key != "install" and not folder.is_absolute():
            yield (key,), f"{key}: {folder} is not a full path", "begin it with / or ~"
        elif folder is not None and key != "wheelhouse" and (file := _in_the_way(folder.expanduser())) is not None:
            yield (key,), f"{key}: {folder} cannot be a folder: {file} is a file", "name another folder"


def unusable_in(folder: str) -> str | None:
    """What of a folder's name stands in the way of environments and mounts; None where nothing does."""
    if ":" in folder:
        return "a ':' parts the folders of PATH and of mounts"
    if any(len(part.encode("utf-8", "surrogateescape")) > _LONGEST_NAME for part in folder.split("/")):
        return f"a name in it has more than {_LONGEST_NAME} bytes"
    return None if folder.isprintable() else "it has a character that cannot be shown"


def _in_the_way(folder: Path) -> Path | None:
    """The file where ``folder``, or one that it is in, would have to be."""
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        return None if there.is_dir() else there
    except OSError:  # it is told when the folder is used
        return None


def _wrong_images(answers: Answers) -> Iterator[Wrong]:
    images = answers.images
    if images.processors is not None and images.processors < 1:
        yield ("images", "processors"), f"images.processors: {images.processors} is less than 1", "leave it out for all"
    if images.level is not None and (fault := level_fault(images.compression, images.level)) is not None:
        yield ("images", "level"), f"images.level: {fault}", "leave it out for the usual one"


def _wrong_mix(answers: Answers) -> Iterator[Wrong]:
    kind = answers.cluster_type
    for section in ("slurm", "runai"):
        if getattr(answers, section) is not None and kind != section:
            yield (section,), f"{section} is for cluster type {section}, and this one is {kind}", "leave it out"
    if answers.method != "here" and kind != "slurm":
        yield ("method",), f"method {answers.method} is for cluster type slurm", "leave it out, or write 'here'"
    if kind == "local" and answers.node_architecture not in (AUTO, machine := platform.machine()):
        text = f"node_architecture: a local installation is for this machine, and it is {machine}"
        yield ("node_architecture",), text, "leave it out, or install on such a machine"
    if kind == "slurm" and answers.gpu_type == CPU and answers.uses_images:
        yield ("gpu_type",), "gpu_type cpu has no images", "add 'slurm: {container: none}'"


def to_yaml(answers: Answers) -> str:
    """The answers as the text of an answers file: what differs from the defaults."""
    text: str = yaml.safe_dump(_lean(answers), sort_keys=False, allow_unicode=True)
    return "# SPDX-License-Identifier: Apache-2.0\n# Answers for llmb-install --config.\n" + text


def _lean(answers: Answers) -> dict[str, Any]:
    data, usual = typed.to_data(answers), typed.to_data(_SAMPLE)
    kept = {"cluster_type", "install", "versions"}
    data["runai"] = lean(answers.runai)
    data["gpu_types"] = {name: without_nulls(own) for name, own in data["gpu_types"].items()}
    return {key: without_nulls(value) for key, value in data.items() if key in kept or value != usual[key]}


def lean(value: Any) -> Any:
    """A section as data, in it and below only what differs from the defaults."""
    if not dataclasses.is_dataclass(value) or hasattr(value, "unparse"):
        return typed.to_data(value)
    found = {}
    for field in dataclasses.fields(value):
        own = getattr(value, field.name)
        made = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if own != made:
            found[field.name] = lean(own)
    return found


def without_nulls(value: Any) -> Any:
    """A mapping without the keys that say nothing: null for an option, no further options."""
    return value if not isinstance(value, dict) else {k: v for k, v in value.items() if v is not None and v != {}}
