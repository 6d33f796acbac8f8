# SPDX-License-Identifier: Apache-2.0
"""Pre-submission checks on Run:ai, every fault at once: credentials, project, volume, images,
secrets.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from llmb import api
from llmb.api import ClusterConfig, Fault, Launch, LlmbError, as_fault, is_secret_name, suggest
from llmb_runai import pod_script, request
from llmb_runai.runai_config import RunaiConfig

_VOLUME = (
    "check runai.pvc in cluster_config.yaml: 'path' is its folder in pods, 'local' its folder here"
)


def check(
    launches: Sequence[Launch], config: ClusterConfig, runai: RunaiConfig, programs: Path
) -> list[Fault]:
    """Every fault of these launches and of the configuration, without calling the API."""
    faults = faults_here(launches, config, runai, programs)
    faults += faults_of_secrets(launches, config, runai)
    faults += api.launch_faults(launches, config, None, programs)
    return list(dict.fromkeys(faults))


def faults_here(
    launches: Sequence[Launch], config: ClusterConfig, runai: RunaiConfig, programs: Path
) -> list[Fault]:
    """The faults that a dry run can see: of the requests, the images, the volume and its mounts."""
    # Repeats of a job follow one another and have the same faults.
    faults = [
        fault
        for launch, _ in itertools.groupby(launches)
        for fault in _own_faults(launch, config, runai, programs)
    ]
    return list(dict.fromkeys([*faults, *_volume_faults(config, runai)]))


def _own_faults(
    launch: Launch, config: ClusterConfig, runai: RunaiConfig, programs: Path
) -> Iterator[Fault]:
    stamp = api.preview_stamp(launch, config)
    try:
        script = pod_script.render(launch, stamp, config, programs)
    except LlmbError as error:
        yield replace(as_fault(error), message=f"{launch.name}: {error.message}")
    else:
        yield from _faults_of_request(script)
    if launch.image is None:
        hint = "name one of a registry with --image"
        yield Fault(
            message=f"{launch.name} has no image", hint=hint, code="image-not-set", key=launch.name
        )
    elif launch.image.startswith(("/", ".", "~")) or launch.image.endswith(".sqsh"):
        message = f"{launch.image} is a file, and Run:ai pulls images from a registry"
        hint = "name it as its registry does, such as --image nvcr.io/nvidia/nemo:25.04.01"
        yield Fault(message=message, hint=hint, code="image-is-file", value=launch.image)
    if launch.venv is not None and not request.is_on(runai.pvc, launch.venv):
        message = f"the environment {launch.venv} is not on the volume {runai.pvc.mount}"
        yield Fault(message=message, hint=_VOLUME, code="venv-not-on-volume", value=launch.venv)
    if launch.start != "ranks" and launch.nodes > 1:
        message = (
            f"{launch.name} starts by '{launch.start}', which a run of {launch.nodes} pods"
            " cannot do"
        )
        hint = "choose a scale of one node, or a program with start 'ranks'"
        yield Fault(
            message=message, hint=hint, code="start-unsupported", key="start", value=launch.start
        )
    for mount in launch.mounts:
        source, _, target = mount.partition(":")
        target = target.partition(":")[0] or source
        if not request.is_on(runai.pvc, source) or target not in (
            source,
            request.in_pod(runai.pvc, source),
        ):
            message = (
                f"{mount} cannot be mounted: pods see only the volume {runai.pvc.name}, at"
                f" {runai.pvc.path}"
            )
            hint = "copy it to the volume, and name its path there"
            yield Fault(message=message, hint=hint, code="mount-not-on-volume", value=mount)


def _faults_of_request(script: str) -> Iterator[Fault]:
    """Return what the documented API would refuse of the request at the top of a run's script."""
    kind, content = request.from_script(script)
    for fault in faults_of_body(kind, {**content, "projectId": "", "clusterId": ""}):
        newer = (
            "if your control plane is newer than 2.24 and has it, --force submits without"
            " this check"
        )
        yield Fault(
            message=f"the request to Run:ai: {fault}",
            hint=(
                f"{fault.hint}  {newer}"
                if fault.hint
                else "change it under runai in cluster_config.yaml"
            ),
            code="field-invalid",
            key=fault.path,
        )


def faults_of_secrets(
    launches: Sequence[Launch], config: ClusterConfig, runai: RunaiConfig
) -> Iterator[Fault]:
    """The secrets that runai.secrets does not map to Kubernetes. Their values are never handled
    here.
    """
    needed = {name: launch.name for launch in reversed(launches) for name in launch.secrets}
    passed = {name: "pass_environment" for name in config.pass_environment if is_secret_name(name)}
    for name, user in {**passed, **needed}.items():
        if name not in runai.secrets:
            hint = (
                "kubectl create secret generic NAME --from-file=KEY=FILE --namespace"
                f" runai-{runai.project}, and in cluster_config.yaml runai: secrets: {{{name}:"
                " {name: NAME, key: KEY}}"
            )
            message = (
                f"{user} needs {name}, and runai.secrets does not name its secret in Kubernetes"
            )
            yield Fault(message=message, hint=hint, code="secret-missing", key=name)


def _volume_faults(config: ClusterConfig, runai: RunaiConfig) -> Iterator[Fault]:
    mount = runai.pvc.mount
    if not mount.is_dir():
        message = f"the volume {runai.pvc.name} is not mounted here: {mount} does not exist"
        yield Fault(message=message, hint=_VOLUME, code="volume-not-mounted", value=str(mount))
    folders = {
        "the install folder": config.llmb_install,
        "experiments_root": config.runs_root,
    }
    reported = set[Path]()
    for label, folder in folders.items():
        if not request.is_on(runai.pvc, folder) and not any(
            folder.is_relative_to(folder_above) for folder_above in reported
        ):
            reported.add(folder)
            message = f"{label} {folder} is not on the volume {mount}, and pods see nothing else"
            yield Fault(
                message=message, hint=_VOLUME, code="folder-not-on-volume", value=str(folder)
            )


REQUESTS = {"trainings": "TrainingCreationRequest", "distributed": "DistributedCreationRequest"}
_SCALAR = re.compile(r"(string|integer|number|boolean)(?: (\d*)\.\.(\d*))?(?: /(.*)/)?")
_SCALARS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "text"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFault:
    """A fault of one field: ``path`` names it from the top of the body
    (``spec.ports[0].container``).
    """

    path: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.path} {self.message}"


def faults_of_body(kind: str, body: object) -> list[FieldFault]:
    """Return what the API would refuse in the body of a new workload. ``kind`` as in its address:
    ``trainings``.
    """
    return list(_faults(REQUESTS[kind], body, ""))


@lru_cache(maxsize=1)
def api_types() -> dict[str, Any]:
    """Every type of fields.yaml by name: its fields, or its allowed values."""
    types: dict[str, Any] = yaml.safe_load(
        Path(__file__).with_name("fields.yaml").read_text("utf-8")
    )
    return types


def _faults(kind: str, value: object, path: str) -> Iterator[FieldFault]:
    """The faults of ``value``, which must have the type ``kind``. Null is a field that is not
    set.
    """
    if kind.startswith("["):
        yield from _list_faults(kind[1:-1], value, path)
    elif (scalar := _SCALAR.fullmatch(kind)) is not None:
        if (fault := _scalar_fault(scalar, value)) is not None:
            yield FieldFault(path=path, message=fault)
    elif isinstance(words := api_types()[kind], list):
        if value not in words:
            yield FieldFault(
                path=path,
                message=f"must be one of {', '.join(words)}",
                hint=suggest(str(value), words),
            )
    else:
        yield from _object_faults(words, value, path)


def _list_faults(kind: str, value: object, path: str) -> Iterator[FieldFault]:
    if not isinstance(value, list):
        yield FieldFault(path=path, message="must be a list")
        return
    for index, item in enumerate(value):
        yield from _faults(kind, item, f"{path}[{index}]")


def _object_faults(fields: Mapping[str, str], value: object, path: str) -> Iterator[FieldFault]:
    if not isinstance(value, dict):
        yield FieldFault(path=path or "the body", message="must be an object")
        return
    kinds = {name.rstrip("!"): kind for name, kind in fields.items()}
    for name, field_value in value.items():
        field_path = f"{path}.{name}".lstrip(".")
        if name not in kinds:
            yield FieldFault(
                path=field_path,
                message="is not a field of Run:ai's API",
                hint=suggest(str(name), kinds),
            )
        elif field_value is not None:
            yield from _faults(kinds[name], field_value, field_path)
    for name in fields:
        if name.endswith("!") and value.get(name[:-1]) is None:
            yield FieldFault(path=f"{path}.{name[:-1]}".lstrip("."), message="is missing")


def _scalar_fault(kind: re.Match[str], value: object) -> str | None:
    """The fault of a text, a number or a boolean, or None where it is valid."""
    name, smallest, largest, pattern = kind.groups()
    types, shown = _SCALARS[name]
    if not isinstance(value, types) or (isinstance(value, bool) and name != "boolean"):
        return f"must be {shown}"
    size = (
        len(value)
        if isinstance(value, str)
        else float(value)
        if isinstance(value, int | float)
        else 0
    )
    be, unit = ("have", " characters") if name == "string" else ("be", "")
    if smallest and size < int(smallest):
        return "is empty" if value == "" else f"must {be} at least {smallest}{unit}"
    if largest and size > int(largest):
        return f"must {be} at most {largest}{unit}"
    if pattern and re.match(pattern, str(value)) is None:
        return f"'{value}' must match {pattern}"
    return None
