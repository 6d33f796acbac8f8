# SPDX-License-Identifier: Apache-2.0
"""What the API takes for the body of a new workload, and what it says against another one."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from llmb.clusters.runai import fields

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_VALUES = ("value", "secret", "configMap", "podFieldRef", "userCredential")


def faults_of(kind: str, content: Any) -> list[str]:
    """Everything wrong with a body; empty when it is accepted."""
    found = [str(one) for one in fields.faults_of(kind, content)]
    return found or [*_common_faults(content), *(_distributed_faults(content) if kind == "distributed" else ())]


def pods_of(kind: str, content: Mapping[str, Any]) -> int:
    """How many pods a workload has: of a distributed one the workers and the master."""
    return 1 if kind == "trainings" else 1 + int(content["spec"].get("numWorkers") or 1)


def gpus_of(kind: str, content: Mapping[str, Any]) -> int:
    """How many GPUs a workload asks for in all."""
    own = int((content["spec"].get("compute") or {}).get("gpuDevicesRequest") or 0)
    return own * pods_of(kind, content)


def _common_faults(content: Mapping[str, Any]) -> Iterator[str]:
    """What the types of the fields do not say."""
    spec = content.get("spec") or {}
    if not spec.get("image"):
        yield "spec.image is missing"
    if not _NAME.fullmatch(content["name"]) or len(content["name"]) > 63:
        yield f"name '{content['name']}' is not one that Kubernetes takes"
    for index, variable in enumerate(spec.get("environmentVariables") or ()):
        if len([name for name in _VALUES if variable.get(name) is not None]) != 1:
            yield f"spec.environmentVariables[{index}] needs one value"


def _distributed_faults(content: Mapping[str, Any]) -> Iterator[str]:
    same = content.get("masterSpecSameAsWorker") or False
    if same == (content.get("masterSpec") is not None):
        yield "either masterSpecSameAsWorker or masterSpec"
    if (content.get("spec") or {}).get("distributedFramework") is None:
        yield "spec.distributedFramework is missing"
