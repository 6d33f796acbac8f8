# SPDX-License-Identifier: Apache-2.0
"""What the API takes for the body of a new workload, and what it says against another one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_COMMON = {
    "annotations": list, "args": str, "autoDeletionTimeAfterCompletionSeconds": int, "backoffLimit": int,
    "category": str, "command": str, "compute": dict, "createHomeDir": bool, "environmentVariables": list,
    "image": str, "imagePullPolicy": ("Always", "Never", "IfNotPresent"), "imagePullSecrets": list, "labels": list,
    "nodePools": list, "nodeType": str, "preemptibility": str, "priorityClass": str,
    "restartPolicy": ("Always", "Never", "OnFailure"), "security": dict, "storage": dict,
    "terminateAfterPreemption": bool, "terminationGracePeriodSeconds": int, "tolerations": list, "workingDir": str,
}  # fmt: skip
SPECS: Mapping[str, Mapping[str, Any]] = {
    "trainings": {**_COMMON, "completions": int, "parallelism": int},
    "distributed": {
        **_COMMON, "cleanPodPolicy": ("None", "All", "Running"), "maxReplicas": int, "minReplicas": int,
        "distributedFramework": ("MPI", "PyTorch", "TF", "XGBoost", "JAX"), "numWorkers": int,
    },
}  # fmt: skip
_HEAD = {"name": str, "useGivenNameAsPrefix": bool, "projectId": str, "clusterId": str, "spec": dict}
_OF_DISTRIBUTED = {"masterSpecSameAsWorker": bool, "masterSpec": dict}
_COMPUTE = {
    "cpuCoreLimit": float, "cpuCoreRequest": float, "cpuMemoryLimit": str, "cpuMemoryRequest": str,
    "extendedResources": list, "gpuDevicesRequest": int, "gpuMemoryLimit": str, "gpuMemoryRequest": str,
    "gpuPortionLimit": float, "gpuPortionRequest": float, "gpuRequestType": str, "largeShmRequest": bool,
}  # fmt: skip
_PVC = {
    "name": str, "path": str, "existingPvc": bool, "claimName": str, "readOnly": bool, "ephemeral": bool,
    "claimInfo": dict, "dataSharing": bool,
}  # fmt: skip
_VARIABLE = {"name": str, "value": str, "secret": dict, "configMap": dict, "podFieldRef": dict}
_STORAGE = dict.fromkeys(("pvc", "hostPath", "nfs", "emptyDirVolume", "git", "s3", "secretVolume"), list)


def faults_of(kind: str, content: Any) -> list[str]:
    """Everything wrong with a body; empty when it is taken."""
    if not isinstance(content, dict):
        return ["the body is not an object"]
    head = {**_HEAD, **(_OF_DISTRIBUTED if kind == "distributed" else {})}
    found = [*_faults(content, head, "")]
    found += [f"{name} is missing" for name in ("name", "projectId", "clusterId", "spec") if name not in content]
    if found:
        return found
    spec = content["spec"]
    found += _faults(spec, SPECS[kind], "spec.")
    if "image" not in spec:
        found.append("spec.image is missing")
    if not _NAME.fullmatch(content["name"]) or len(content["name"]) > 63:
        found.append(f"name '{content['name']}' is not one that Kubernetes takes")
    found += [*_faults(spec.get("compute", {}), _COMPUTE, "spec.compute.")]
    storage = spec.get("storage", {})
    found += [*_faults(storage, _STORAGE, "spec.storage.")]
    for index, volume in enumerate(storage.get("pvc", ())):
        found += _faults(volume, _PVC, f"spec.storage.pvc[{index}].")
    for index, variable in enumerate(spec.get("environmentVariables", ())):
        found += _faults(variable, _VARIABLE, f"spec.environmentVariables[{index}].")
        if len([name for name in ("value", "secret", "configMap", "podFieldRef") if name in variable]) != 1:
            found.append(f"spec.environmentVariables[{index}] needs one value")
    if kind == "distributed":
        found += _distributed_faults(content)
    return found


def pods_of(kind: str, content: Mapping[str, Any]) -> int:
    """How many pods a workload has: of a distributed one the workers and the master."""
    return 1 if kind == "trainings" else 1 + int(content["spec"].get("numWorkers", 1))


def gpus_of(kind: str, content: Mapping[str, Any]) -> int:
    """How many GPUs a workload asks for in all."""
    own = int(content["spec"].get("compute", {}).get("gpuDevicesRequest", 0))
    return own * pods_of(kind, content)


def _distributed_faults(content: Mapping[str, Any]) -> Iterator[str]:
    same = content.get("masterSpecSameAsWorker", False)
    if same == ("masterSpec" in content):
        yield "either masterSpecSameAsWorker or masterSpec"
    if content["spec"].get("numWorkers", 1) < 1:
        yield "spec.numWorkers must be at least 1"
    if "distributedFramework" not in content["spec"]:
        yield "spec.distributedFramework is missing"


def _faults(data: Any, fields: Mapping[str, Any], place: str) -> Iterator[str]:
    if not isinstance(data, dict):
        yield f"{place.rstrip('.')} is not an object"
        return
    for name, value in data.items():
        wanted = fields.get(name)
        if wanted is None:
            yield f"{place}{name} is not a field"
        elif isinstance(wanted, tuple):
            if value not in wanted:
                yield f"{place}{name} must be one of {', '.join(wanted)}"
        elif not isinstance(value, (int, float) if wanted is float else wanted) or (
            isinstance(value, bool) and wanted is not bool
        ):
            yield f"{place}{name} must be of type {wanted.__name__}"
        elif isinstance(value, str) and not value and name != "value":
            yield f"{place}{name} is empty"
