# SPDX-License-Identifier: Apache-2.0
"""Values of the control plane: clusters, projects, workloads with their pods, and the troubles of a
test.
"""

import contextlib
import os
import re
import shlex
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import psutil

from llmb.core import shell
from llmb_testing.ports import hold_port, number_of

END = ("Completed", "Failed", "Stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiCluster:
    """A cluster."""

    uuid: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiProject:
    """A project of a cluster."""

    id: str
    name: str
    cluster: str


@dataclass(slots=True, kw_only=True)
class Trouble:
    """A fault of the next ``times`` requests whose method and path (below /api/v1) match.

    ``lost``: serve it, then cut the connection. ``cut``: cut the connection at once. ``odd``: serve
    it and return ``data`` with status 200.
    """

    method: str = ".*"
    path: str = ".*"
    #: A status to return instead of serving the request.
    answer: int | Literal["lost", "cut", "odd"]
    data: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    #: Serve the request before returning the status, as when a gateway fails on the way back.
    is_done: bool = False

    def matches(self, method: str, path: str) -> bool:
        """Return True if it applies to this request. Each match uses it up by one."""
        if (
            not self.times
            or not re.fullmatch(self.method, method)
            or not re.fullmatch(self.path, path)
        ):
            return False
        self.times -= 1
        return True


class Pods:
    """The ``count`` pods of the workload ``name``, with the variables of the Kubernetes operator.

    Each writes its output to a file in ``folder``. ``secrets``: Kubernetes secrets, by name and
    key. Paths of volumes are paths of this machine.
    """

    def __init__(
        self,
        name: str,
        spec: Mapping[str, Any],
        count: int,
        secrets: Mapping[str, Mapping[str, str]],
        folder: Path,
    ) -> None:
        argv = [*shlex.split(spec["command"]), *shlex.split(spec.get("args") or "")]
        base = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
        variables = {
            entry["name"]: _value(entry, secrets)
            for entry in spec.get("environmentVariables") or ()
        }
        self._held = hold_port()  # until the master listens on it
        self.processes = []
        folder.mkdir(parents=True, exist_ok=True)
        for rank in range(count):
            host = f"{name}-master-0" if rank == 0 else f"{name}-worker-{rank - 1}"
            operator = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(number_of(self._held)),
                "WORLD_SIZE": str(count),
                "RANK": str(rank),
                "HOSTNAME": host,
            }
            environment = {**base, **(operator if count > 1 else {"HOSTNAME": name}), **variables}
            log = folder / f"{host}.log"
            cwd = Path(spec.get("workingDir") or "/")
            self.processes.append(
                shell.spawn(argv, env=environment, cwd=cwd, log=log, session=True)
            )

    def codes(self) -> list[int | None]:
        """Each pod's exit code, None while it runs."""
        return [process.poll() for process in self.processes]

    def terminate(self) -> None:
        """Send SIGTERM to the first process of each pod, as a kubelet does."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()

    def kill(self) -> None:
        """Kill all processes of the pods, including those in their own group or session."""
        for process in self.processes:
            for below in _descendants(process.pid):
                with contextlib.suppress(psutil.Error):
                    below.kill()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._held.close()


@dataclass(slots=True, kw_only=True)
class RunaiWorkload:
    """A workload, and its pods once they are started."""

    id: str
    kind: str
    body: dict[str, Any]
    created: str
    project: RunaiProject
    phase: str = "Creating"
    message: str = ""
    reason: str = ""
    changed: str = field(default_factory=lambda: now())
    #: Its ``pendingSchedulingMessages`` while it is pending.
    waits: list[dict[str, Any]] = field(default_factory=list)
    #: The phases it goes through, one per request, empty if its pods decide.
    script: list[str] = field(default_factory=list)
    pods: Pods | None = None
    restarts: int = 0
    terminated: float | None = None
    completed: str | None = None
    deleted: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["name"])

    def enter(self, phase: str) -> None:
        """Change to ``phase``."""
        self.phase, self.message, self.reason, self.changed = phase, "", "", now()
        if phase in END:
            self.completed = now()


def now() -> str:
    """Return the current time in the format of the API."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def pods_of(kind: str, content: Mapping[str, Any]) -> int:
    """Number of pods: for a distributed workload, the workers and the master."""
    return 1 if kind == "trainings" else 1 + int(content["spec"].get("numWorkers") or 1)


def gpus_of(kind: str, content: Mapping[str, Any]) -> int:
    """Number of GPUs that a workload requests in total."""
    gpus = int((content["spec"].get("compute") or {}).get("gpuDevicesRequest") or 0)
    return gpus * pods_of(kind, content)


def _descendants(pid: int) -> list[psutil.Process]:
    """Return all descendants of a process, none if it has ended."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _value(variable: Mapping[str, Any], secrets: Mapping[str, Mapping[str, str]]) -> str:
    if "secret" in variable:
        return secrets[variable["secret"]["name"]][variable["secret"]["key"]]
    return str(variable.get("value", ""))  # config maps and pod fields have no value here
