# SPDX-License-Identifier: Apache-2.0
"""Pre-submission checks on Run:ai, every fault at once: credentials, project, volume, images, secrets."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from llmb.clusters import checks
from llmb.clusters.runai import fields, pod_script, request
from llmb.clusters.runai.pod_script import Setting
from llmb.clusters.runai.request import in_pod, is_on
from llmb.clusters.runai.workloads import Api
from llmb.config import ClusterConfig
from llmb.config.runai import RunaiConfig
from llmb.errors import Fault, LlmbError, as_fault
from llmb.runs import store
from llmb.runs.launch import PREVIEW_ID, PREVIEW_TIMESTAMP, Launch, Stamp
from llmb.system.secrets import is_secret_name

_VOLUME = "check runai.pvc in cluster_config.yaml: 'path' is its folder in pods, 'local' its folder here"


def check(launches: Sequence[Launch], setting: Setting, runai: RunaiConfig, digest: str) -> list[Fault]:
    """Every fault of these launches and of the configuration, without calling the API."""
    # Repeats of a job follow one another and have the same faults.
    faults = [fault for launch, _ in itertools.groupby(launches) for fault in _own_faults(launch, setting, runai)]
    faults += faults_of_secrets(launches, setting.config, runai)
    faults += _volume_faults(setting.config, runai)
    faults += checks.faults_of_folders(setting.config, digest, launches)
    return list(dict.fromkeys(faults))


def faults_of_api(api: Api) -> Iterator[Fault]:
    """What Run:ai rejects of the configuration: address, sign-in, project."""
    try:
        _ = api.project
    except LlmbError as error:
        yield as_fault(error)


def _own_faults(launch: Launch, setting: Setting, runai: RunaiConfig) -> Iterator[Fault]:
    root = setting.config.experiments("w") / launch.name / f"{launch.name}_{PREVIEW_TIMESTAMP}"
    stamp = Stamp(id=PREVIEW_ID, timestamp=PREVIEW_TIMESTAMP, directory=str(root))
    try:
        script = pod_script.render(launch, stamp, setting, f"launch_{launch.name}")
    except LlmbError as error:
        message = f"{launch.name}: {error.message}"
        yield Fault(message=message, hint=error.hint, code=error.code, key=error.key, value=error.value)
    else:
        yield from _faults_of_request(script)
    yield from checks.faults_of_launch(launch, setting.config)
    if launch.image is None:
        hint = "name one of a registry with --image"
        yield Fault(message=f"{launch.name} has no image", hint=hint, code="image-not-set", key=launch.name)
    elif launch.image.startswith(("/", ".", "~")) or launch.image.endswith(".sqsh"):
        message = f"{launch.image} is a file, and Run:ai pulls images from a registry"
        hint = "name it as its registry does, such as --image nvcr.io/nvidia/nemo:25.04.01"
        yield Fault(message=message, hint=hint, code="image-is-file", value=launch.image)
    if launch.venv is not None:
        yield from checks.faults_of_venv(launch, setting.config)
        if not is_on(runai.pvc, launch.venv):
            message = f"the environment {launch.venv} is not on the volume {runai.pvc.here}"
            yield Fault(message=message, hint=_VOLUME, code="venv-not-on-volume", value=launch.venv)
    for mount in launch.mounts:
        source, _, target = mount.partition(":")
        target = target.partition(":")[0] or source
        if not is_on(runai.pvc, source) or target not in (source, in_pod(runai.pvc, source)):
            message = f"{mount} cannot be mounted: pods see only the volume {runai.pvc.name}, at {runai.pvc.path}"
            hint = "copy it to the volume, and name its path there"
            yield Fault(message=message, hint=hint, code="mount-not-on-volume", value=mount)


def _faults_of_request(script: str) -> Iterator[Fault]:
    """What the documented API would refuse of the request at the top of a run's script."""
    kind, content = request.from_script(script)
    for fault in fields.faults_of(kind, {**content, "projectId": "", "clusterId": ""}):
        newer = "if your control plane is newer than 2.24 and has it, --no-preflight submits without this check"
        hint = f"{fault.hint}  {newer}" if fault.hint else "change it under runai in cluster_config.yaml"
        yield Fault(message=f"the request to Run:ai: {fault}", hint=hint, code="field-invalid", key=fault.path)


def faults_of_secrets(launches: Sequence[Launch], config: ClusterConfig, runai: RunaiConfig) -> Iterator[Fault]:
    """The secrets that runai.secrets does not map to Kubernetes; llmb never handles their values."""
    needed = {name: launch.name for launch in reversed(launches) for name in launch.secrets}
    passed = {name: "pass_environment" for name in config.pass_environment if is_secret_name(name)}
    for name, who in {**passed, **needed}.items():
        if name not in runai.secrets:
            hint = (
                f"kubectl create secret generic NAME --from-file=KEY=FILE --namespace runai-{runai.project}, and in "
                f"cluster_config.yaml runai: secrets: {{{name}: {{name: NAME, key: KEY}}}}"
            )
            message = f"{who} needs {name}, and runai.secrets does not name its secret in Kubernetes"
            yield Fault(message=message, hint=hint, code="secret-missing", key=name)


def _volume_faults(config: ClusterConfig, runai: RunaiConfig) -> Iterator[Fault]:
    here = runai.pvc.here
    if not here.is_dir():
        message = f"the volume {runai.pvc.name} is not mounted here: {here} does not exist"
        yield Fault(message=message, hint=_VOLUME, code="volume-not-mounted", value=str(here))
        return
    folders = {"the install folder": config.llmb_install, "experiments_root": store.runs_root(config)}
    reported = set[Path]()
    for what, folder in folders.items():
        if not is_on(runai.pvc, folder) and not any(folder.is_relative_to(other) for other in reported):
            reported.add(folder)
            message = f"{what} {folder} is not on the volume {here}, and pods see nothing else"
            yield Fault(message=message, hint=_VOLUME, code="folder-not-on-volume", value=str(folder))
