# SPDX-License-Identifier: Apache-2.0
"""The section ``runai`` of cluster_config.yaml."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmb.api import KeyFaultError, is_secret_name

# A subdomain of RFC 1123, as Kubernetes names claims. Run:ai's API accepts 63 characters of 253.
_PART = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_CLAIM = re.compile(rf"(?=.{{1,63}}\Z){_PART}(?:\.{_PART})*")


def claim_fault(text: str) -> str | None:
    """Return the reason why ``text`` is not the name of a persistent volume claim."""
    if _CLAIM.fullmatch(text) is not None:
        return None
    return (
        f"no claim is named '{text}': a name has at most 63 lower-case letters, digits, hyphens and"
        " points, and begins and ends with a letter or a digit"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiPvc:
    """A persistent volume claim: its name in Run:ai, its mount ``path`` in pods, and the Kubernetes
    claim.
    """

    name: str
    path: str
    claim: str
    #: Its mount path on this machine. None: the same as ``path``.
    local: Path | None = None

    def __post_init__(self) -> None:
        if (reason := claim_fault(self.claim)) is not None:
            raise KeyFaultError(
                reason, "claim", hint="kubectl get pvc -n runai-PROJECT lists claims"
            )
        if not self.path.startswith("/"):
            raise KeyFaultError(f"'{self.path}' is not a full path", "path", hint="begin it with /")
        if self.local is not None and not self.local.is_absolute():
            raise KeyFaultError(
                f"'{self.local}' is not a full path", "local", hint="begin it with /"
            )

    @property
    def mount(self) -> Path:
        """The mount path of the volume on this machine."""
        return self.local or Path(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiSecret:
    """A secret of Kubernetes in the project's namespace, and its key that holds the value."""

    name: str
    key: str

    def __post_init__(self) -> None:
        if _SECRET.fullmatch(self.name) is None:
            hint = (
                "create the secret with a name of lower-case letters and digits, with hyphens"
                " between them"
            )
            raise KeyFaultError(
                f"Run:ai's API accepts no secret named '{self.name}'", "name", hint=hint
            )
        if not self.key:
            raise KeyFaultError(
                "is empty", "key", hint="write the key of the secret that has the value"
            )


# Fields of a Run:ai workload that only llmb sets; other values would change or lose the benchmark.
FIXED_RUNAI_SPEC = frozenset(
    {
        *("args", "backoffLimit", "command", "completions", "distributedFramework", "image"),
        *("maxReplicas", "minReplicas", "numWorkers", "parallelism", "restartPolicy"),
    }
)
# Fields that llmb sets in part; the values in cluster_config.yaml are added.
_SHARED: dict[str, type] = {
    "compute": dict,
    "storage": dict,
    "environmentVariables": list,
    "annotations": list,
}
_GPUS = "gpuDevicesRequest"
_WORDS: dict[type, str] = {dict: "a mapping", list: "a list"}
_SECRET = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")  # source: the API's documentation


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiConfig:
    """Run:ai: the control plane's API, the project, and the volume for files and logs."""

    base_url: str
    project: str
    pvc: RunaiPvc
    app_id: str | None = None
    #: Name or uuid, needed if several clusters have a project of that name.
    cluster: str | None = None
    #: The Kubernetes secret of each variable whose value is a secret.
    secrets: dict[str, RunaiSecret] = field(default_factory=dict)
    node_pools: tuple[str, ...] = ()
    #: Number of each pod's resources, such as network devices.
    extended_resources: dict[str, int | str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    #: Days after which Run:ai deletes a finished workload.
    keep_days: int = 7
    #: Further fields of the workload's spec by their API names, None to omit one. ``compute``,
    #: ``storage``, ``environmentVariables`` and ``annotations`` are added to llmb's own.
    spec: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.match(r"https://[^/]|http://(127\.0\.0\.1|localhost)[:/]", self.base_url):
            hint = "https://HOST/api/v1; secrets are sent to it, so http is refused"
            raise KeyFaultError(
                f"'{self.base_url}' is not the address of an API", "base_url", hint=hint
            )
        if self.keep_days < 1:
            raise KeyFaultError("must be at least 1", "keep_days")
        if fixed := next((name for name in self.spec if name in FIXED_RUNAI_SPEC), None):
            raise KeyFaultError(
                f"{fixed} is set by llmb", "spec", fixed, hint="remove it", code="key-reserved"
            )
        for name, kind in _SHARED.items():
            if name in self.spec and not isinstance(self.spec[name], kind):
                raise KeyFaultError(f"must be {_WORDS[kind]}", "spec", name, code="value-type")
        if _GPUS in self.spec.get("compute", {}):
            hint = "set the GPUs of a node with gpu_types: gpus_per_node"
            raise KeyFaultError(
                f"{_GPUS} is set by llmb", "spec", "compute", _GPUS, hint=hint, code="key-reserved"
            )
        for name, volumes in self.spec.get("storage", {}).items():
            if not isinstance(volumes, list):
                raise KeyFaultError("must be a list", "spec", "storage", name, code="value-type")
        self._check_variables()

    def _check_variables(self) -> None:
        """Check that each variable occurs once and is not a secret: the request is stored with the
        logs.
        """
        for index, variable in enumerate(self.spec.get("environmentVariables", ())):
            place = ("spec", "environmentVariables", index)
            if not isinstance(variable, dict) or not isinstance(variable.get("name"), str):
                hint = "write {name: NAME, value: TEXT}"
                raise KeyFaultError(
                    "must be a mapping with a name", *place, hint=hint, code="value-type"
                )
            before = [
                variable_before["name"]
                for variable_before in self.spec["environmentVariables"][:index]
            ]
            if variable["name"] in (*self.secrets, *before):
                definition = (
                    "in runai.secrets" if variable["name"] in self.secrets else "named above"
                )
                message = f"{variable['name']} is {definition} already"
                raise KeyFaultError(
                    message, *place, hint="remove one of them", code="key-duplicate"
                )
            if "value" in variable and is_secret_name(variable["name"]):
                hint = (
                    f"runai: secrets: {{{variable['name']}: {{name: SECRET, key: KEY}}}} gets it"
                    " from Kubernetes"
                )
                raise KeyFaultError(
                    f"{variable['name']} is a secret; its value must not be in this file",
                    *place,
                    hint=hint,
                    code="secret-value",
                )
