# SPDX-License-Identifier: Apache-2.0
"""The control plane's state: projects, tokens, workloads, and what a test may do to them."""

import itertools
import json
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from llmb_testing.runai import phases
from llmb_testing.runai.workload import END, Cluster, Project, Trouble, Workload, now


class ControlPlane:
    """Run:ai's control plane with one cluster; ``serve`` answers for it, and ``url`` is then the API's address.

    Pods print into ``folder``. ``gpus``: how many run at a time. ``has_pods``: whether workloads really run; without,
    each goes through ``phases``. ``clock``: the time that tokens go by, in epoch seconds. ``projects``, ``clusters``,
    ``keys`` (of access keys, by id), ``applications`` (the older kind; None for a release that has none),
    ``token_versions`` (of the addresses that give tokens), ``secrets`` and ``claims`` may be changed at will;
    ``issues`` says what a policy has against a body. ``requests`` has every method and path, ``answers`` each status.
    """

    def __init__(self, folder: Path, *, gpus: int = 8, has_pods: bool = True) -> None:
        self.folder, self.gpus, self.has_pods = folder, gpus, has_pods
        self.phases: Sequence[str] = ("Pending", "Running", "Completed")
        self.clock: Callable[[], float] = time.time
        self.token_seconds = 3600.0
        self.clusters = [Cluster(uuid="c1", name="cluster-one")]
        self.projects = [Project(id="4500001", name="benchmarks", cluster="c1")]
        self.keys = {"me": "s3cret"}
        self.applications: dict[str, str] | None = {}
        self.token_versions = {1, 2}
        self.secrets: dict[str, dict[str, str]] = {}
        self.claims = ["work-claim"]
        self.issues: Callable[[Mapping[str, Any]], list[dict[str, str]]] = lambda body: []
        self.workloads: list[Workload] = []
        self.tokens: dict[str, float] = {}
        self.requests: list[tuple[str, str]] = []
        self.answers: list[int] = []
        self.url = ""
        self.lock = threading.RLock()
        self._troubles: list[Trouble] = []
        self._serial = itertools.count(1)

    def kill_pods(self) -> None:
        """End every process of every workload."""
        for workload in self.workloads:
            if workload.pods is not None:
                workload.pods.kill()

    def trouble(self, *troubles: Trouble) -> None:
        """Let these happen."""
        with self.lock:
            self._troubles += troubles

    def trouble_for(self, method: str, path: str) -> Trouble | None:
        """What is to happen to this request."""
        return next((one for one in self._troubles if one.fits(method, path)), None)

    def expire_tokens(self) -> None:
        """Let no token be good any more."""
        with self.lock:
            self.tokens.clear()

    def new_token(self) -> str:
        """A token that is good for ``token_seconds``."""
        until = self.clock() + self.token_seconds
        claims = {"exp": int(until), "sub": f"token-{next(self._serial)}"}
        parts = [urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in ({"alg": "none"}, claims)]
        text = ".".join([*parts, "signature"])
        self.tokens[text] = until
        return text

    def is_good(self, token: str) -> bool:
        """Whether a token is good now."""
        return self.tokens.get(token, 0.0) > self.clock()

    def add(self, kind: str, body: dict[str, Any], project: Project) -> Workload:
        """Take a new workload."""
        if body.get("useGivenNameAsPrefix"):
            body = {**body, "name": f"{body['name']}-{uuid.uuid4().hex[:5]}"}
        workload = Workload(id=str(uuid.uuid4()), kind=kind, body=body, created=now(), project=project)
        workload.script = [] if self.has_pods else list(self.phases)
        self.workloads.append(workload)
        return workload

    def there(self) -> list[Workload]:
        """The workloads that were not deleted."""
        return [one for one in self.workloads if one.deleted is None]

    def named(self, name: str) -> Workload:
        """The one workload whose name has ``name`` in it. For tests."""
        (found,) = [one for one in self.workloads if name in one.name]
        return found

    def step(self) -> None:
        """Move every workload one phase on, if it is to move."""
        for workload in self.there():
            if workload.script:
                workload.enter(workload.script.pop(0))
            elif self.has_pods:
                self._move(workload)

    def run_until_idle(self, seconds: float) -> None:
        """Let all workloads come to their ends, with nobody looking. Raises TimeoutError after so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            with self.lock:
                self.step()
                if all(one.phase in END for one in self.there()):
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not within {seconds:g} s: {[(one.name, one.phase, one.message) for one in self.there()]}"
                )
            time.sleep(0.1)

    def stop(self, workload: Workload) -> None:
        """Begin to suspend a workload."""
        if workload.phase in END:
            return
        if workload.pods is None:
            workload.enter("Stopped")
            workload.script = []
            return
        workload.pods.terminate()
        workload.told_to_end = time.monotonic()
        workload.enter("Stopping")

    def delete(self, workload: Workload) -> None:
        """Delete a workload: it is no longer there, and among the deleted."""
        if workload.pods is not None:
            workload.pods.kill()
        workload.deleted = now()

    def forget(self, workload: Workload) -> None:
        """Delete a workload so that nothing knows it any more."""
        self.delete(workload)
        self.workloads.remove(workload)

    def evict(self, workload: Workload) -> None:
        """Take a workload's pods away and let it wait for others, as a preemption does."""
        assert workload.pods is not None
        workload.pods.kill()
        workload.pods = None
        workload.enter("Pending")

    def _move(self, workload: Workload) -> None:
        if workload.phase == "Creating":
            workload.enter("Pending")
        elif workload.phase == "Pending":
            phases.schedule(workload, self.there(), self.gpus)
        elif workload.phase == "Initializing":
            self._start(workload)
        elif workload.phase in ("Running", "Degraded"):
            if phases.look(workload):
                self._start(workload)
        elif workload.phase == "Stopping":
            phases.finish_stopping(workload)

    def _start(self, workload: Workload) -> None:
        phases.start(workload, self.claims, self.secrets, self.folder)
