# SPDX-License-Identifier: Apache-2.0
"""What stands in the way of runs on Run:ai, all of it at once: credentials, project, volume, images, secrets."""

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
from llmb.errors import Fault, LlmbError
from llmb.runs import store
from llmb.runs.launch import PREVIEW_ID, PREVIEW_TIMESTAMP, Launch, Stamp
from llmb.system.secrets import is_secret_name

_VOLUME = "runai.pvc in cluster_config.yaml: 'path' is where pods see it, 'local' where this machine does"


def check(launches: Sequence[Launch], setting: Setting, runai: RunaiConfig, digest: str) -> list[Fault]:
    """Every fault of these launches and of this place; the API is not asked."""
    # Repeats of a job stand side by side and lack the same.
    faults = [fault for launch, _ in itertools.groupby(launches) for fault in _own_faults(launch, setting, runai)]
    faults += faults_of_secrets(launches, setting.config, runai)
    faults += _volume_faults(setting.config, runai)
    faults += checks.faults_of_place(setting.config, digest, launches)
    return list(dict.fromkeys(faults))


def faults_of_api(api: Api) -> Iterator[Fault]:
    """What Run:ai itself says against the configuration: address, sign-in, project."""
    try:
        _ = api.project
    except LlmbError as error:
        yield Fault(message=error.message, hint=error.hint)


def _own_faults(launch: Launch, setting: Setting, runai: RunaiConfig) -> Iterator[Fault]:
    root = setting.config.experiments("w") / launch.name / f"{launch.name}_{PREVIEW_TIMESTAMP}"
    stamp = Stamp(id=PREVIEW_ID, timestamp=PREVIEW_TIMESTAMP, directory=str(root))
    try:
        script = pod_script.render(launch, stamp, setting, f"launch_{launch.name}")
    except LlmbError as error:
        yield Fault(message=f"{launch.name}: {error.message}", hint=error.hint)
    else:
        yield from _faults_of_request(script)
    yield from checks.faults_of_launch(launch, setting.config)
    if launch.image is None:
        yield Fault(message=f"{launch.name} has no image", hint="--image names one, as a registry has it")
    elif launch.image.startswith(("/", ".", "~")) or launch.image.endswith(".sqsh"):
        message = f"{launch.image} is a file, and Run:ai pulls images from a registry"
        yield Fault(message=message, hint="--image nvcr.io/nvidia/nemo:25.04.01, or what its registry calls it")
    if launch.venv is not None:
        yield from checks.faults_of_venv(launch, setting.config)
        if not is_on(runai.pvc, launch.venv):
            yield Fault(message=f"the environment {launch.venv} is not on the volume {runai.pvc.here}", hint=_VOLUME)
    for mount in launch.mounts:
        source, _, target = mount.partition(":")
        target = target.partition(":")[0] or source
        if not is_on(runai.pvc, source) or target not in (source, in_pod(runai.pvc, source)):
            message = f"{mount} cannot be mounted: pods see the volume {runai.pvc.name} alone, at {runai.pvc.path}"
            yield Fault(message=message, hint="copy it onto the volume, and name it as it is there")


def _faults_of_request(script: str) -> Iterator[Fault]:
    """What the documented API would refuse of the request at the head of a run's script."""
    kind, content = request.from_script(script)
    for fault in fields.faults_of(kind, {**content, "projectId": "", "clusterId": ""}):
        newer = "--no-preflight submits it to a control plane that is newer than 2.24 and has it"
        hint = f"{fault.hint}  {newer}" if fault.hint else "change it under runai in cluster_config.yaml"
        yield Fault(message=f"the request to Run:ai: {fault}", hint=hint)


def faults_of_secrets(launches: Sequence[Launch], config: ClusterConfig, runai: RunaiConfig) -> Iterator[Fault]:
    """The secrets that nobody has put where pods get them; their values never travel through here."""
    needed = {name: launch.name for launch in reversed(launches) for name in launch.secrets}
    passed = {name: "pass_environment" for name in config.pass_environment if is_secret_name(name)}
    for name, who in {**passed, **needed}.items():
        if name not in runai.secrets:
            hint = (
                f"kubectl create secret generic NAME --from-file=KEY=FILE --namespace runai-{runai.project}, and in "
                f"cluster_config.yaml runai: secrets: {{{name}: {{name: NAME, key: KEY}}}}"
            )
            yield Fault(message=f"{who} needs {name}, and runai.secrets does not say where pods get it", hint=hint)


def _volume_faults(config: ClusterConfig, runai: RunaiConfig) -> Iterator[Fault]:
    here = runai.pvc.here
    if not here.is_dir():
        yield Fault(message=f"the volume {runai.pvc.name} is not mounted here: there is no folder {here}", hint=_VOLUME)
        return
    folders = {"the install folder": config.llmb_install, "experiments_root": store.runs_root(config)}
    told = set[Path]()
    for what, folder in folders.items():
        if not is_on(runai.pvc, folder) and not any(folder.is_relative_to(other) for other in told):
            told.add(folder)
            yield Fault(message=f"{what} {folder} is not on the volume {here}, and pods see nothing else", hint=_VOLUME)
