# SPDX-License-Identifier: Apache-2.0
"""The values of the control plane: clusters, projects, workloads, and the troubles that a test wants."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from llmb_testing.runai.pods import Pods

END = ("Completed", "Failed", "Stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster that the control plane knows."""

    uuid: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project of a cluster."""

    id: str
    name: str
    cluster: str


@dataclass(slots=True, kw_only=True)
class Trouble:
    """What happens to the next ``times`` requests whose method and path (below /api/v1) fit.

    ``answer``: a status that is given in place of doing it; ``lost``, which does it and cuts the connection; ``cut``,
    which cuts the connection at once; ``odd``, which does it and answers ``data`` with status 200. ``is_done``: whether
    it is done all the same before a status is given, as where a gateway breaks on the way back.
    """

    method: str = ".*"
    path: str = ".*"
    answer: int | Literal["lost", "cut", "odd"]
    data: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    is_done: bool = False

    def fits(self, method: str, path: str) -> bool:
        """Whether it is for this request; each that fits uses it up by one."""
        if not self.times or not re.fullmatch(self.method, method) or not re.fullmatch(self.path, path):
            return False
        self.times -= 1
        return True


@dataclass(slots=True, kw_only=True)
class Workload:
    """A workload, its pods when they were started, and what a test has said of its phases.

    ``script``: the phases that it goes through, one further with each look; empty where pods decide. ``waits``: its
    ``pendingSchedulingMessages`` while it is pending.
    """

    id: str
    kind: str
    body: dict[str, Any]
    created: str
    project: Project
    phase: str = "Creating"
    message: str = ""
    reason: str = ""
    changed: str = field(default_factory=lambda: now())
    waits: list[dict[str, Any]] = field(default_factory=list)
    script: list[str] = field(default_factory=list)
    pods: Pods | None = None
    restarts: int = 0
    told_to_end: float | None = None
    completed: str | None = None
    deleted: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["name"])

    def enter(self, phase: str) -> None:
        """Be in ``phase`` from now on."""
        self.phase, self.message, self.reason, self.changed = phase, "", "", now()
        if phase in END:
            self.completed = now()


def now() -> str:
    """The time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def pods_of(kind: str, content: Mapping[str, Any]) -> int:
    """How many pods a workload has: of a distributed one the workers and the master."""
    return 1 if kind == "trainings" else 1 + int(content["spec"].get("numWorkers") or 1)


def gpus_of(kind: str, content: Mapping[str, Any]) -> int:
    """How many GPUs a workload asks for in all."""
    own = int((content["spec"].get("compute") or {}).get("gpuDevicesRequest") or 0)
    return own * pods_of(kind, content)
