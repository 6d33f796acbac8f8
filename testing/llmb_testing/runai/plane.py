# SPDX-License-Identifier: Apache-2.0
"""The control plane's state: projects, tokens, workloads and their phases, and what a test can do
to them.
"""

import itertools
import json
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from llmb_testing.runai.workload import (
    END,
    Pods,
    RunaiCluster,
    RunaiProject,
    RunaiWorkload,
    Trouble,
    gpus_of,
    now,
    pods_of,
)

_BUSY = ("Initializing", "Running", "Degraded", "Stopping")
_GRACE = 120.0  # seconds that pods have to end after SIGTERM; the machine may be busy


class ControlPlane:
    """Run:ai's control plane with one cluster. ``serve`` answers its requests and sets ``url``.

    ``folder``: where pods write their output. ``gpus``: GPUs of the cluster. ``has_pods``: whether
    workloads really run. If not, each goes through ``phases``. ``clock``: epoch seconds for the end
    of tokens. Tests may change ``projects``, ``clusters``, ``keys`` (access keys by id),
    ``applications`` (the older kind of key, or None for a release without them), ``token_versions``
    (of the token endpoints), ``secrets`` and ``claims``. ``issues`` returns a policy's complaints
    about a body. ``requests`` has the method and path of each request, ``answers`` each status.
    """

    def __init__(self, folder: Path, *, gpus: int = 8, has_pods: bool = True) -> None:
        self.folder, self.gpus, self.has_pods = folder, gpus, has_pods
        self.phases: Sequence[str] = ("Pending", "Running", "Completed")
        self.clock: Callable[[], float] = time.time
        self.token_seconds = 3600.0
        self.clusters = [RunaiCluster(uuid="c1", name="cluster-one")]
        self.projects = [RunaiProject(id="4500001", name="benchmarks", cluster="c1")]
        self.keys = {"me": "s3cret"}
        self.applications: dict[str, str] | None = {}
        self.token_versions = {1, 2}
        self.secrets: dict[str, dict[str, str]] = {}
        self.claims = ["work-claim"]
        self.issues: Callable[[Mapping[str, Any]], list[dict[str, str]]] = lambda body: []
        self.workloads: list[RunaiWorkload] = []
        self.tokens: dict[str, float] = {}
        self.requests: list[tuple[str, str]] = []
        self.answers: list[int] = []
        self.url = ""
        self.lock = threading.RLock()
        self._troubles: list[Trouble] = []
        self._serial = itertools.count(1)

    def kill_pods(self) -> None:
        """Kill every process of every workload."""
        for workload in self.workloads:
            if workload.pods is not None:
                workload.pods.kill()

    def trouble(self, *troubles: Trouble) -> None:
        """Let these happen to the next requests that match."""
        with self.lock:
            self._troubles += troubles

    def trouble_for(self, method: str, path: str) -> Trouble | None:
        """Return the trouble that applies to this request, if any."""
        return next((trouble for trouble in self._troubles if trouble.matches(method, path)), None)

    def expire_tokens(self) -> None:
        """Invalidate all tokens."""
        with self.lock:
            self.tokens.clear()

    def new_token(self) -> str:
        """Return a token that is valid for ``token_seconds``."""
        until = self.clock() + self.token_seconds
        claims = {"exp": int(until), "sub": f"token-{next(self._serial)}"}
        parts = [
            urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in ({"alg": "none"}, claims)
        ]
        text = ".".join([*parts, "signature"])
        self.tokens[text] = until
        return text

    def is_good(self, token: str) -> bool:
        """Return True if a token is valid now."""
        return self.tokens.get(token, 0.0) > self.clock()

    def add(self, kind: str, body: dict[str, Any], project: RunaiProject) -> RunaiWorkload:
        """Create a workload."""
        if body.get("useGivenNameAsPrefix"):
            body = {**body, "name": f"{body['name']}-{uuid.uuid4().hex[:5]}"}
        workload = RunaiWorkload(
            id=str(uuid.uuid4()), kind=kind, body=body, created=now(), project=project
        )
        workload.script = [] if self.has_pods else list(self.phases)
        self.workloads.append(workload)
        return workload

    def there(self) -> list[RunaiWorkload]:
        """Return the workloads that are not deleted."""
        return [workload for workload in self.workloads if workload.deleted is None]

    def named(self, name: str) -> RunaiWorkload:
        """Return the only workload with ``name`` in its name. For tests."""
        (named,) = [workload for workload in self.workloads if name in workload.name]
        return named

    def step(self) -> None:
        """Advance every workload by one phase, if it is due."""
        for workload in self.there():
            if workload.script:
                workload.enter(workload.script.pop(0))
            elif self.has_pods:
                self._move(workload)

    def run_until_idle(self, seconds: float) -> None:
        """Advance all workloads to their ends, without requests. Raises TimeoutError after
        ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while True:
            with self.lock:
                self.step()
                if all(workload.phase in END for workload in self.there()):
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not ended after {seconds:g} s:"
                    f" {[(workload.name, workload.phase, workload.message) for workload in self.there()]}"
                )
            time.sleep(0.1)

    def stop(self, workload: RunaiWorkload) -> None:
        """Start to suspend a workload."""
        if workload.phase in END:
            return
        if workload.pods is None:
            workload.enter("Stopped")
            workload.script = []
            return
        workload.pods.terminate()
        workload.terminated = time.monotonic()
        workload.enter("Stopping")

    def delete(self, workload: RunaiWorkload) -> None:
        """Delete a workload. It stays in the list of deleted ones."""
        if workload.pods is not None:
            workload.pods.kill()
        workload.deleted = now()

    def forget(self, workload: RunaiWorkload) -> None:
        """Delete a workload without a trace."""
        self.delete(workload)
        self.workloads.remove(workload)

    def evict(self, workload: RunaiWorkload) -> None:
        """Kill a workload's pods and return it to pending, as a preemption does."""
        assert workload.pods is not None
        workload.pods.kill()
        workload.pods = None
        workload.enter("Pending")

    def _move(self, workload: RunaiWorkload) -> None:
        if workload.phase == "Creating":
            workload.enter("Pending")
        elif workload.phase == "Pending":
            _schedule(workload, self.there(), self.gpus)
        elif workload.phase == "Initializing":
            self._start(workload)
        elif workload.phase in ("Running", "Degraded"):
            if _restarts(workload):
                self._start(workload)
        elif workload.phase == "Stopping":
            _finish_stopping(workload)

    def _start(self, workload: RunaiWorkload) -> None:
        _start(workload, self.claims, self.secrets, self.folder)


def _schedule(workload: RunaiWorkload, workloads: Sequence[RunaiWorkload], gpus: int) -> None:
    """Start a pending workload if enough of the ``gpus`` are free."""
    used = sum(
        gpus_of(other_workload.kind, other_workload.body)
        for other_workload in workloads
        if other_workload.phase in _BUSY
    )
    if used + gpus_of(workload.kind, workload.body) <= gpus:
        workload.enter("Initializing")
    else:
        workload.message = f"Unschedulable: {gpus - used} GPUs are free"


def _start(
    workload: RunaiWorkload,
    claims: Sequence[str],
    secrets: Mapping[str, Mapping[str, str]],
    folder: Path,
) -> None:
    """Start a workload's pods, or add an event if a claim or secret is missing."""
    spec = workload.body["spec"]
    volumes = [entry["claimName"] for entry in (spec.get("storage") or {}).get("pvc") or ()]
    named = [
        entry["secret"] for entry in spec.get("environmentVariables") or () if "secret" in entry
    ]
    events = [("FailedMount", f"claim {name} not found") for name in volumes if name not in claims]
    events += [
        ("Failed", f"secret {entry['name']} not found")
        for entry in named
        if entry["key"] not in secrets.get(entry["name"], {})
    ]
    if events:
        reason, message = events[0]
        workload.events = [
            {"type": "Warning", "reason": reason, "message": message, "createdAt": now()}
        ]
        return
    count = pods_of(workload.kind, workload.body)
    workload.pods = Pods(workload.name, spec, count, secrets, folder / workload.id)
    workload.enter("Running")


def _restarts(workload: RunaiWorkload) -> bool:
    """Return True if its pods restart. Otherwise set its end by the rules of the PyTorch operator.

    It is completed when the master pod is, and failed when any pod is.
    """
    assert workload.pods is not None
    codes = workload.pods.codes()
    if any(codes):
        spec = workload.body["spec"]
        if spec.get("restartPolicy", "OnFailure") != "Never" and workload.restarts < spec.get(
            "backoffLimit", 6
        ):
            workload.pods.kill()
            workload.restarts += 1
            return True
        workload.enter("Failed")
    elif codes[0] == 0:
        workload.enter("Completed")
    return False


def _finish_stopping(workload: RunaiWorkload) -> None:
    """Set it to stopped when all pods have ended. Kill them after a while."""
    assert workload.pods is not None
    assert workload.terminated is not None
    if None not in workload.pods.codes() or time.monotonic() - workload.terminated > _GRACE:
        workload.pods.kill()
        workload.enter("Stopped")
