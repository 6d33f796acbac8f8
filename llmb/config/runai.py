# SPDX-License-Identifier: Apache-2.0
"""What cluster_config.yaml may say of Run:ai."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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


# What llmb sets itself in each workload of Run:ai: with others a benchmark would be lost, or another one.
FIXED_RUNAI_SPEC = frozenset(
    {"args", "autoDeletionTimeAfterCompletionSeconds", "backoffLimit", "cleanPodPolicy", "command", "completions",
     "distributedFramework", "environmentVariables", "image", "maxReplicas", "minReplicas", "numWorkers",
     "parallelism", "restartPolicy", "storage", "terminateAfterPreemption", "workingDir"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiConfig:
    """Run:ai: the control plane's API, the project, and the volume for files and logs.

    ``cluster``: its name or uuid, where several have a project of that name. ``secrets``: where a pod gets each
    variable whose value is a secret. ``extended_resources``: of each pod, such as network devices, and how many.
    ``keep_days``: after how many days Run:ai forgets a workload that has ended. ``spec``: further fields of the
    workload's spec, by the API's names; ``compute`` in it beside llmb's own.
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
        if not isinstance(self.spec.get("compute", {}), dict):
            raise KeyFaultError("must be a mapping", "spec", "compute")
