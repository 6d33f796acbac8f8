# SPDX-License-Identifier: Apache-2.0
"""What a run asks of Run:ai: the body of the request that makes its workload, as plain data. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from llmb.clusters.bashscript import bash
from llmb.config import ClusterConfig
from llmb.config.runai import RunaiConfig, RunaiPvc
from llmb.config.schema import GpuTypeConfig
from llmb.errors import LlmbError
from llmb.runs.launch import Launch, Program, StagedFile, Stamp, Wrapper
from llmb.workload.gpus import CPU


def is_on(pvc: RunaiPvc, path: str | Path) -> bool:
    """Whether ``path``, as this machine names it, lies on the volume."""
    return PurePosixPath(path).is_relative_to(PurePosixPath(pvc.here))


def in_pod(pvc: RunaiPvc, path: str | Path) -> str:
    """``path`` as pods see it; one that is not on the volume stays."""
    if not is_on(pvc, path):
        return str(path)
    return str(PurePosixPath(pvc.path) / PurePosixPath(path).relative_to(PurePosixPath(pvc.here)))


def launch_in_pod(pvc: RunaiPvc, launch: Launch) -> Launch:
    """``launch`` with every mention of a folder of the volume as pods see it, within its files and arguments too."""
    if str(pvc.here) == pvc.path:
        return launch
    # A whole path, and not the middle of a longer one.
    here = re.compile(rf"(?<![\w./-]){re.escape(str(pvc.here).rstrip('/'))}(?![\w.-])")

    def said(text: str) -> str:
        return here.sub(lambda _: pvc.path.rstrip("/"), text)

    return replace(
        launch,
        program=launch.program if launch.program.script is None else Program(script=said(launch.program.script)),
        args=tuple(map(said, launch.args)),
        venv=said(launch.venv) if launch.venv is not None else None,
        environment={name: said(value) for name, value in launch.environment.items()},
        wrappers=tuple(Wrapper(name=one.name, argv=tuple(map(said, one.argv))) for one in launch.wrappers),
        files=tuple(StagedFile(name=one.name, text=said(one.text)) for one in launch.files),
    )


TRAINING, DISTRIBUTED = "trainings", "distributed"  # of one pod, and of several
LONGEST_NAME = 50  # characters: the names of pods, which are hosts, are longer by -master-0 and may have 63
_MARK = "#RUNAI "  # before each line of the body, which stands at the head of the run's script
_DAY = 86400  # seconds
# Fields that the API has for workloads of several pods alone.
_OF_SEVERAL = frozenset({"cleanPodPolicy", "mpiLauncherCreationPolicy", "slotsPerWorker", "sshAuthMountPath"})


def section(config: ClusterConfig) -> RunaiConfig:
    """The configuration's part on Run:ai. Raises LlmbError where there is none."""
    if config.runai is None:
        hint = "runai: {base_url: https://HOST/api/v1, project: p, pvc: {name: w, path: /w, claim: c}}"
        raise LlmbError("cluster_config.yaml says nothing under 'runai'", hint=hint)
    return config.runai


def kind_of(launch: Launch) -> str:
    """The kind of workload, as the API's addresses name it."""
    return TRAINING if launch.nodes == 1 else DISTRIBUTED


def workload_name(launch: Launch, stamp: Stamp) -> str:
    """The workload's name, by whose end a run is found: Kubernetes allows small letters, digits and hyphens."""
    plain = re.sub(r"[^a-z0-9]+", "-", launch.name.lower()).strip("-") or "run"
    plain = plain if plain[0].isalpha() else f"run-{plain}"
    space = LONGEST_NAME - 1 - max(len(stamp.id), len("abcd1234-10"))
    return f"{plain[:space].rstrip('-')}-{stamp.id}"


def body(launch: Launch, stamp: Stamp, script: str, config: ClusterConfig) -> dict[str, Any]:
    """All but the ids of project and cluster, which only the API knows, and the values of the shell's variables.

    ``script``: the name of the run's script in its place. What a default would decide is said: a benchmark that starts
    again in silence measures something else, and a pod that is cleaned away cannot be asked.
    """
    runai = section(config)
    spec: dict[str, Any] = {
        "command": "bash",
        "args": bash(in_pod(runai.pvc, f"{stamp.place}/{script}")),
        "image": launch.image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Never",
        "backoffLimit": 0,
        "terminateAfterPreemption": True,
        "autoDeletionTimeAfterCompletionSeconds": runai.keep_days * _DAY,
        "compute": _compute(launch, config),
        "storage": {
            "pvc": [
                {
                    "name": runai.pvc.name,
                    "path": runai.pvc.path,
                    "existingPvc": True,
                    "claimName": runai.pvc.claim,
                    "readOnly": False,
                }
            ]
        },
        "environmentVariables": _variables(launch, config),
    }
    if pools := _node_pools(launch, config):
        spec["nodePools"] = pools
    if runai.annotations:
        spec["annotations"] = [{"name": name, "value": value} for name, value in runai.annotations.items()]
    if kind_of(launch) == DISTRIBUTED:
        spec |= {"distributedFramework": "PyTorch", "numWorkers": launch.nodes - 1, "cleanPodPolicy": "None"}
    spec = _joined(spec, _yours(launch, runai))
    found = {"name": workload_name(launch, stamp), "useGivenNameAsPrefix": False, "spec": spec}
    return found if kind_of(launch) == TRAINING else {**found, "masterSpecSameAsWorker": True}  # the master trains too


def _yours(launch: Launch, runai: RunaiConfig) -> dict[str, Any]:
    """The fields of the configuration that the API has for this kind of workload."""
    is_one = kind_of(launch) == TRAINING
    return {name: value for name, value in runai.spec.items() if not (is_one and name in _OF_SEVERAL)}


def _joined(ours: dict[str, Any], yours: Mapping[str, Any]) -> dict[str, Any]:
    """``yours`` over ``ours``: mappings key by key, lists one behind the other; what you set to null is not sent."""
    found = dict(ours)
    for name, value in yours.items():
        own = found.get(name)
        if isinstance(own, dict) and isinstance(value, dict):
            found[name] = _joined(own, value)
        elif isinstance(own, list) and isinstance(value, list) and name != "nodePools":
            found[name] = [*own, *value]
        elif value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return found


def to_lines(kind: str, content: dict[str, Any]) -> list[str]:
    """The request as the first lines of a script, comments to bash."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    return [f"{_MARK}{line}" for line in (f"POST /workloads/{kind}", *text.splitlines())]


def from_script(script: str) -> tuple[str, dict[str, Any]]:
    """The kind of workload and the body that stand at the head of a run's script. Raises LlmbError."""
    lines = [line.removeprefix(_MARK) for line in script.splitlines() if line.startswith(_MARK)]
    try:
        content = json.loads("\n".join(lines[1:]))
    except ValueError:
        content = None
    if not lines or not isinstance(content, dict):
        raise LlmbError("the run's script has no request to Run:ai at its head", hint="submit the job again")
    return lines[0].rpartition("/")[2], content


def placeholder(name: str) -> str:
    """What stands for the value of the submitting shell's variable ``name`` before a submission."""
    return f"<{name}>"


def _compute(launch: Launch, config: ClusterConfig) -> dict[str, Any]:
    gpus = config.rows_for(launch.gpu_type or config.gpu_type) != CPU
    found: dict[str, Any] = {"gpuDevicesRequest": launch.ranks_per_node} if gpus else {}
    found["largeShmRequest"] = True  # NCCL and data loaders need more than 64 MB
    if more := section(config).extended_resources:
        found["extendedResources"] = [{"resource": name, "quantity": str(count)} for name, count in more.items()]
    return found


def _variables(launch: Launch, config: ClusterConfig) -> list[dict[str, Any]]:
    """Secrets by their name in Kubernetes, and those of the submitting shell; all others are in the script."""
    secrets = section(config).secrets
    named = dict.fromkeys([*launch.secrets, *(name for name in config.pass_environment if name in secrets)])
    found: list[dict[str, Any]] = [
        {"name": name, "secret": {"name": secrets[name].name, "key": secrets[name].key}}
        for name in named
        if name in secrets
    ]
    passed = [name for name in config.pass_environment if name not in named]
    return [*found, *({"name": name, "value": placeholder(name)} for name in passed)]


def _node_pools(launch: Launch, config: ClusterConfig) -> list[str]:
    """The pool of the launch's GPU type, else those of all jobs."""
    own = config.gpu_types.get(launch.gpu_type or config.gpu_type, GpuTypeConfig()).partition
    return own.split(",") if own is not None else list(section(config).node_pools)
