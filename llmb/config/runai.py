# SPDX-License-Identifier: Apache-2.0
"""What cluster_config.yaml may say of Run:ai."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmb.system.secrets import is_secret_name
from llmb.text.typed import KeyFaultError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiPvc:
    """A persistent volume claim: its name in Run:ai, where pods see it, and the Kubernetes claim.

    ``local``: where this machine sees it, the same as ``path`` where None.
    """

    name: str
    path: str
    claim: str
    local: Path | None = None

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise KeyFaultError(f"'{self.path}' is not a full path", "path", hint="begin it with /")
        if self.local is not None and not self.local.is_absolute():
            raise KeyFaultError(f"'{self.local}' is not a full path", "local", hint="begin it with /")

    @property
    def here(self) -> Path:
        """Where this machine sees the volume."""
        return self.local or Path(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiSecret:
    """A secret of Kubernetes in the project's namespace, and its key that holds the value."""

    name: str
    key: str

    def __post_init__(self) -> None:
        if _SECRET.fullmatch(self.name) is None:
            hint = "small letters, digits, and hyphens between them: create the secret under such a name"
            raise KeyFaultError(f"Run:ai's API accepts no secret named '{self.name}'", "name", hint=hint)
        if not self.key:
            raise KeyFaultError("is empty", "key", hint="the key in the secret that holds the value")


# What llmb alone sets in each workload of Run:ai: with other values a benchmark would be lost, or another one.
FIXED_RUNAI_SPEC = frozenset(
    {
        "args",
        "backoffLimit",
        "command",
        "completions",
        "distributedFramework",
        "image",
        "maxReplicas",
        "minReplicas",
        "numWorkers",
        "parallelism",
        "restartPolicy",
    }
)
# What llmb sets a part of: yours is added to it.
_SHARED: Mapping[str, type] = {"compute": dict, "storage": dict, "environmentVariables": list, "annotations": list}
_GPUS = "gpuDevicesRequest"
_WORDS: Mapping[type, str] = {dict: "a mapping", list: "a list"}
_SECRET = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")  # as the API's documentation has it


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiConfig:
    """Run:ai: the control plane's API, the project, and the volume for files and logs.

    ``cluster``: its name or uuid, where several have a project of that name. ``secrets``: where a pod gets each
    variable whose value is a secret. ``extended_resources``: of each pod, such as network devices, and how many.
    ``keep_days``: after how many days Run:ai forgets a workload that has ended. ``spec``: further fields of the
    workload's spec, by the API's names; None for one that is not to be sent. ``compute``, ``storage``,
    ``environmentVariables`` and ``annotations`` in it are added to llmb's own.
    """

    base_url: str
    project: str
    pvc: RunaiPvc
    app_id: str | None = None
    cluster: str | None = None
    secrets: dict[str, RunaiSecret] = field(default_factory=dict)
    node_pools: tuple[str, ...] = ()
    extended_resources: dict[str, int | str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    keep_days: int = 7
    spec: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.match(r"https://[^/]|http://(127\.0\.0\.1|localhost)[:/]", self.base_url):
            hint = "https://HOST/api/v1: secrets travel there"
            raise KeyFaultError(f"'{self.base_url}' is not the address of an API", "base_url", hint=hint)
        if self.keep_days < 1:
            raise KeyFaultError("must be at least 1", "keep_days")
        if fixed := next((name for name in self.spec if name in FIXED_RUNAI_SPEC), None):
            raise KeyFaultError(f"{fixed} is for llmb alone to set", "spec", fixed, hint="leave it out")
        for name, kind in _SHARED.items():
            if name in self.spec and not isinstance(self.spec[name], kind):
                raise KeyFaultError(f"must be {_WORDS[kind]}", "spec", name)
        if _GPUS in self.spec.get("compute", {}):
            hint = "gpu_types: gpus_per_node says how many GPUs a node has"
            raise KeyFaultError(f"{_GPUS} is for llmb alone to set", "spec", "compute", _GPUS, hint=hint)
        self._check_storage()
        self._check_variables()

    def _check_storage(self) -> None:
        for name, volumes in self.spec.get("storage", {}).items():
            if not isinstance(volumes, list):
                raise KeyFaultError("must be a list", "spec", "storage", name)

    def _check_variables(self) -> None:
        """The request is kept beside the logs: it has no secret's value, and each variable once."""
        for index, one in enumerate(self.spec.get("environmentVariables", ())):
            where = ("spec", "environmentVariables", index)
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                raise KeyFaultError("must be a mapping with a name", *where, hint="{name: NAME, value: TEXT}")
            before = [other["name"] for other in self.spec["environmentVariables"][:index]]
            if one["name"] in (*self.secrets, *before):
                other = "in runai.secrets" if one["name"] in self.secrets else "named above"
                raise KeyFaultError(f"{one['name']} is {other} already", *where, hint="leave out one of them")
            if "value" in one and is_secret_name(one["name"]):
                hint = f"runai: secrets: {{{one['name']}: {{name: SECRET, key: KEY}}}} gets it from Kubernetes"
                raise KeyFaultError(
                    f"{one['name']} is a secret, and its value is no part of this file", *where, hint=hint
                )
