# SPDX-License-Identifier: Apache-2.0
"""How workloads come from phase to phase: as GPUs are free, as their pods start, and as those end."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from llmb_testing.runai.pods import Pods
from llmb_testing.runai.workload import Workload, gpus_of, now, pods_of

_BUSY = ("Initializing", "Running", "Degraded", "Stopping")
_GRACE = 120.0  # seconds that pods have to end when they are told to, on a machine with other work too


def schedule(workload: Workload, there: Sequence[Workload], gpus: int) -> None:
    """Let a workload that is pending begin where enough of the ``gpus`` are free."""
    used = sum(gpus_of(one.kind, one.body) for one in there if one.phase in _BUSY)
    if used + gpus_of(workload.kind, workload.body) <= gpus:
        workload.enter("Initializing")
    else:
        workload.message = f"Unschedulable: {gpus - used} GPUs are free"


def start(workload: Workload, claims: Sequence[str], secrets: Mapping[str, Mapping[str, str]], folder: Path) -> None:
    """Start a workload's pods; where a claim or a secret is not there, tell so in an event."""
    spec = workload.body["spec"]
    volumes = [one["claimName"] for one in (spec.get("storage") or {}).get("pvc") or ()]
    named = [one["secret"] for one in spec.get("environmentVariables") or () if "secret" in one]
    events = [("FailedMount", f"claim {name} not found") for name in volumes if name not in claims]
    events += [
        ("Failed", f"secret {one['name']} not found") for one in named if one["key"] not in secrets.get(one["name"], {})
    ]
    if events:
        reason, message = events[0]
        workload.events = [{"type": "Warning", "reason": reason, "message": message, "createdAt": now()}]
        return
    count = pods_of(workload.kind, workload.body)
    workload.pods = Pods(workload.name, spec, count, secrets, folder / workload.id)
    workload.enter("Running")


def look(workload: Workload) -> bool:
    """Whether its pods are to be started again; else it ends as the operator of PyTorch jobs has it.

    It is done when the master is, and has failed when any pod has.
    """
    assert workload.pods is not None
    codes = workload.pods.codes()
    if any(codes):
        spec = workload.body["spec"]
        if spec.get("restartPolicy", "OnFailure") != "Never" and workload.restarts < spec.get("backoffLimit", 6):
            workload.pods.kill()
            workload.restarts += 1
            return True
        workload.enter("Failed")
    elif codes[0] == 0:
        workload.enter("Completed")
    return False


def finish_stopping(workload: Workload) -> None:
    """Be stopped once all pods have ended, by force after a while."""
    assert workload.pods is not None
    assert workload.told_to_end is not None
    if None not in workload.pods.codes() or time.monotonic() - workload.told_to_end > _GRACE:
        workload.pods.kill()
        workload.enter("Stopped")
