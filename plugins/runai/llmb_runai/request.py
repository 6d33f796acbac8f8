# SPDX-License-Identifier: Apache-2.0
"""The request that creates a run's workload in Run:ai, as plain data, and paths as pods see them.
Pure.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from llmb.api import ClusterConfig, Launch, LlmbError, Program, StagedFile, Stamp, Wrapper
from llmb_runai.runai_config import RunaiConfig, RunaiPvc

TRAINING, DISTRIBUTED = "trainings", "distributed"  # of one pod, and of several
# characters: names of pods have a suffix, -master-0, and as host names at most 63
LONGEST_NAME = 50
_MARK = "#RUNAI "  # before each line of the body, at the top of the run's script
_DAY = 86400  # seconds
# Fields that the API has only for workloads of several pods.
_OF_SEVERAL = frozenset(
    {"cleanPodPolicy", "mpiLauncherCreationPolicy", "slotsPerWorker", "sshAuthMountPath"}
)


def section(config: ClusterConfig) -> RunaiConfig:
    """The runai section of the configuration. Raises LlmbError where there is none."""
    if not isinstance(config.section, RunaiConfig):
        hint = (
            "runai: {base_url: https://HOST/api/v1, project: p, pvc: {name: w, path: /w, claim: c}}"
        )
        raise LlmbError(
            "cluster_config.yaml has no section 'runai'",
            hint=hint,
            code="section-missing",
            key="runai",
        )
    return config.section


def kind_of(launch: Launch) -> str:
    """The kind of workload, as the API's addresses name it."""
    return TRAINING if launch.nodes == 1 else DISTRIBUTED


def workload_name(launch: Launch, stamp: Stamp) -> str:
    """The workload's name. It ends with the run's id. Kubernetes allows small letters, digits and
    hyphens.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", launch.name.lower()).strip("-") or "run"
    plain = plain if plain[0].isalpha() else f"run-{plain}"
    space = LONGEST_NAME - 1 - max(len(stamp.id), len("abcd1234-10"))
    return f"{plain[:space].rstrip('-')}-{stamp.id}"


def body(launch: Launch, stamp: Stamp, script: str, config: ClusterConfig) -> dict[str, Any]:
    """The body without the ids of project and cluster, which only the API knows, and the values of
    shell variables.

    ``script``: the name of the run's script in its folder. Defaults are set explicitly: a benchmark
    that restarts unnoticed measures something else, and nobody can examine a pod that was removed.
    """
    runai = section(config)
    spec: dict[str, Any] = {
        "command": "bash",
        "args": shlex.quote(in_pod(runai.pvc, f"{stamp.place}/{script}")),
        "image": launch.image or "<image>",  # of a preview
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
    gpu_type = config.gpu_types.get(launch.gpu_type or config.gpu_type)
    partition = gpu_type.partition if gpu_type is not None else None
    if pools := partition.split(",") if partition is not None else list(runai.node_pools):
        spec["nodePools"] = pools
    if runai.annotations:
        spec["annotations"] = [
            {"name": name, "value": value} for name, value in runai.annotations.items()
        ]
    if kind_of(launch) == DISTRIBUTED:
        spec |= {
            "distributedFramework": "PyTorch",
            "numWorkers": launch.nodes - 1,
            "cleanPodPolicy": "None",
        }
    skipped = _OF_SEVERAL if kind_of(launch) == TRAINING else frozenset()
    spec = _joined(spec, {name: value for name, value in runai.spec.items() if name not in skipped})
    body = {"name": workload_name(launch, stamp), "useGivenNameAsPrefix": False, "spec": spec}
    # the master trains too
    return body if kind_of(launch) == TRAINING else {**body, "masterSpecSameAsWorker": True}


def _joined(base: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``overrides``. Mappings merge, lists join, null fields are omitted."""
    merged = dict(base)
    for name, value in overrides.items():
        default = merged.get(name)
        if isinstance(default, dict) and isinstance(value, dict):
            merged[name] = _joined(default, value)
        elif isinstance(default, list) and isinstance(value, list) and name != "nodePools":
            merged[name] = [*default, *value]
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged


def to_lines(kind: str, content: dict[str, Any]) -> list[str]:
    """The request as the first lines of a script, which are comments for bash."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    return [f"{_MARK}{line}" for line in (f"POST /workloads/{kind}", *text.splitlines())]


def from_script(script: str) -> tuple[str, dict[str, Any]]:
    """The kind of workload and the body at the top of a run's script. Raises LlmbError."""
    lines = [line.removeprefix(_MARK) for line in script.splitlines() if line.startswith(_MARK)]
    try:
        content = json.loads("\n".join(lines[1:]))
    except ValueError:
        content = None
    if not lines or not isinstance(content, dict):
        message = "the run's script does not start with a request to Run:ai"
        raise LlmbError(message, hint="submit the job again", code="request-missing")
    return lines[0].rpartition("/")[2], content


def placeholder(name: str) -> str:
    """The placeholder for the value of the submitting shell's variable ``name``, until
    submission.
    """
    return f"<{name}>"


def _compute(launch: Launch, config: ClusterConfig) -> dict[str, Any]:
    gpus = config.rows_for(launch.gpu_type or config.gpu_type) != "cpu"
    compute: dict[str, Any] = {"gpuDevicesRequest": launch.ranks_per_node} if gpus else {}
    compute["largeShmRequest"] = True  # NCCL and data loaders need more than 64 MB
    if resources := section(config).extended_resources:
        compute["extendedResources"] = [
            {"resource": name, "quantity": str(count)} for name, count in resources.items()
        ]
    return compute


def _variables(launch: Launch, config: ClusterConfig) -> list[dict[str, Any]]:
    """The secrets by their names in Kubernetes, and the submitting shell's variables. The script
    sets all others.
    """
    secrets = section(config).secrets
    named = dict.fromkeys(
        [*launch.secrets, *(name for name in config.pass_environment if name in secrets)]
    )
    variables: list[dict[str, Any]] = [
        {"name": name, "secret": {"name": secrets[name].name, "key": secrets[name].key}}
        for name in named
        if name in secrets
    ]
    passed = [name for name in config.pass_environment if name not in named]
    return [*variables, *({"name": name, "value": placeholder(name)} for name in passed)]


def is_on(pvc: RunaiPvc, path: str | Path) -> bool:
    """Return True if ``path`` on this machine is on the volume."""
    return PurePosixPath(path).is_relative_to(PurePosixPath(pvc.mount))


def in_pod(pvc: RunaiPvc, path: str | Path) -> str:
    """``path`` as pods see it. A path outside the volume stays."""
    if not is_on(pvc, path):
        return str(path)
    return str(PurePosixPath(pvc.path) / PurePosixPath(path).relative_to(PurePosixPath(pvc.mount)))


def launch_in_pod(pvc: RunaiPvc, launch: Launch) -> Launch:
    """``launch`` with every path on the volume as pods see it, also within files and arguments."""
    if str(pvc.mount) == pvc.path:
        return launch
    # A whole path, not the middle of a longer one.
    path_here = re.compile(rf"(?<![\w./-]){re.escape(str(pvc.mount).rstrip('/'))}(?![\w.-])")

    def translated(text: str) -> str:
        return path_here.sub(lambda _: pvc.path.rstrip("/"), text)

    def translated_program(program: Program) -> Program:
        return replace(
            program,
            script=translated(program.script) if program.script is not None else None,
            argv=tuple(map(translated, program.argv)),
            shell=translated(program.shell) if program.shell is not None else None,
        )

    server = launch.server
    if server is not None:
        server = replace(
            server,
            program=translated_program(server.program),
            args=tuple(map(translated, server.args)),
        )
    return replace(
        launch,
        program=translated_program(launch.program),
        args=tuple(map(translated, launch.args)),
        server=server,
        after=translated_program(launch.after) if launch.after is not None else None,
        venv=translated(launch.venv) if launch.venv is not None else None,
        environment={name: translated(value) for name, value in launch.environment.items()},
        wrappers=tuple(
            Wrapper(name=wrapper.name, argv=tuple(map(translated, wrapper.argv)))
            for wrapper in launch.wrappers
        ),
        files=tuple(
            StagedFile(name=file.name, text=translated(file.text)) for file in launch.files
        ),
    )
