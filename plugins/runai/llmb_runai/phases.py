# SPDX-License-Identifier: Apache-2.0
"""The state of a run, from the phase of its workload and from the files that its script has
written.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from llmb.api import JobState, RunRecord, state_by_files

PENDING, RUNNING, COMPLETED, FAILED = "PENDING", "RUNNING", "COMPLETED", "FAILED"
CANCELLED, TIMEOUT = "CANCELLED", "TIMEOUT"
# Files of a run that its scripts write: the first one when a pod is started a second time, the
# other by a pod that has failed, with its exit code.
_RESTARTED, _FAILED_POD = "restarted", ".failed.*"
_TIMED_OUT = 124  # the exit code of a script that was ended at its limit
_NOT_STARTED = JobState(state=PENDING)

WAITING = frozenset({PENDING, "CONFIGURING"})  # of the states that phases have
# Any other phase is no end: Degraded may recover, and unknown phases mean nothing.
PHASES: Mapping[str, str] = {
    "Creating": PENDING,
    "Pending": PENDING,
    "Initializing": "CONFIGURING",
    "Resuming": PENDING,
    "Running": RUNNING,
    "Updating": RUNNING,
    "Degraded": RUNNING,
    "Stopping": "COMPLETING",
    "Terminating": "COMPLETING",
    "Deleting": "COMPLETING",
    "Completed": COMPLETED,
    "Failed": FAILED,
    "Stopped": CANCELLED,
}
# of the states that phases have: nothing more runs, or soon
ENDING = frozenset({COMPLETED, FAILED, CANCELLED, "COMPLETING"})
# phases that the reason names
_NAMED = frozenset({"Degraded", "Stopping", "Terminating", "Deleting", "Updating"})
_EVICTED = re.compile(r"\b(?:evicted|preempted)\b", re.IGNORECASE)
OVERDUE = 600.0  # seconds after the end in a run's files in which Run:ai must have reported it


def of_workload(run: RunRecord, data: Mapping[str, Any], now: float) -> JobState:
    """The state of a run whose workload is ``data`` in Run:ai."""
    files = _written(run)
    phase = str(data.get("phase") or "Unknown")
    state = PHASES.get(phase, phase.upper())
    if state in (COMPLETED, FAILED):
        return _complete(run, files, data, state)
    if state == CANCELLED:
        return JobState(
            state=CANCELLED,
            reason="stopped in Run:ai",
            started=files.started,
            ended=_seconds(data) or now,
        )
    if files.ended is not None and now - files.ended > OVERDUE:
        end = of_files(run)
        if end is not None:
            return replace(
                end, reason=_joined(end.reason, f"from its own files; Run:ai still reports {phase}")
            )
    started = files.started if state not in (PENDING, "CONFIGURING") else None
    return JobState(state=state, reason=_reason(run, data, phase), started=started)


def of_deleted(run: RunRecord, data: Mapping[str, Any], now: float) -> JobState:
    """The state of a run whose workload was deleted, from its own files, else from its last
    phase.
    """
    if (end := of_files(run)) is not None:
        return replace(
            end, reason=_joined(end.reason, "from its own files; its workload was deleted")
        )
    state = PHASES.get(str(data.get("phase")), CANCELLED)
    if state not in (COMPLETED, FAILED):
        state = CANCELLED
    started, ended = _written(run).started, _seconds(data) or now
    return JobState(state=state, reason="its workload was deleted", started=started, ended=ended)


def _written(run: RunRecord) -> JobState:
    """Return the start, the end and the exit code that the scripts have written."""
    return state_by_files(run) or _NOT_STARTED


def of_files(run: RunRecord) -> JobState | None:
    """Return how the run ended, by its own files alone, or None where they do not say."""
    files = _written(run)
    if (run.place / _RESTARTED).exists():
        return _preempted(files)
    if files.exit_code is None:
        return None
    state = COMPLETED if files.exit_code == 0 else FAILED
    return _timed(
        run,
        JobState(state=state, exit_code=files.exit_code, started=files.started, ended=files.ended),
    )


def _complete(run: RunRecord, files: JobState, data: Mapping[str, Any], state: str) -> JobState:
    """An end with what only the script knows: the exit code, the time limit, that pods were started
    twice.
    """
    if state == FAILED and (run.place / _RESTARTED).exists():
        return _preempted(files)
    ended = files.ended or _seconds(data)
    code = files.exit_code if files.exit_code is not None or state == COMPLETED else _failed(run)
    if code:  # Run:ai may call a workload completed whose script has failed
        state = FAILED
    reason = _message(data) if state == FAILED and not code else ""
    if reason and _EVICTED.search(reason):
        state = "PREEMPTED"
    return _timed(
        run,
        JobState(state=state, reason=reason, exit_code=code, started=files.started, ended=ended),
    )


def _failed(run: RunRecord) -> int | None:
    """The exit code of a pod that has failed, before the first pod has written how all ended."""
    for path in run.place.glob(_FAILED_POD):
        with suppress(OSError):
            code = path.read_text(errors="replace").strip()
            if code.isdecimal():
                return int(code)
    return None


def _timed(run: RunRecord, state: JobState) -> JobState:
    if state.exit_code != _TIMED_OUT:
        return state
    minutes, seconds = divmod(run.launch.time_limit, 60)
    limit = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    return replace(state, state=TIMEOUT, reason=f"ran longer than its limit of {limit}")


def _preempted(files: JobState) -> JobState:
    reason = "Run:ai has evicted its pods and started them again; a run starts once"
    return JobState(state="PREEMPTED", reason=reason, started=files.started, ended=files.ended)


def _reason(run: RunRecord, data: Mapping[str, Any], phase: str) -> str:
    """Return why the run waits, or what is unusual: a phase that its state does not show, the
    message, the number of pods.
    """
    pods = data.get("requestedPods")
    count = pods.get("number") if isinstance(pods, dict) else None
    is_unexpected = isinstance(count, int) and count != run.launch.nodes and count > 0
    odd = (
        f"Run:ai asks for {count} pods, and this run has {run.launch.nodes}"
        if is_unexpected
        else ""
    )
    return _joined(phase if phase in _NAMED else "", odd, _message(data))


def _message(data: Mapping[str, Any]) -> str:
    """Return why it waits, else Run:ai's message on the phase, preceded by its reason where the
    message does not name it.
    """
    if waits := waiting_for(data):
        return waits
    text, name = (str(data.get(key) or "").strip() for key in ("phaseMessage", "phaseReason"))
    return _joined(name if name not in text else "", text)


def waiting_for(data: Mapping[str, Any]) -> str:
    """The ``pendingSchedulingMessages``, by node pool, empty where there are none, as in lists of
    workloads.
    """
    listed = data.get("pendingSchedulingMessages") if data.get("phase") == "Pending" else None
    entries = (
        [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    )
    texts = dict[str, list[str]]()
    for entry in entries:
        name, text = (
            str(entry.get("phaseReason") or ""),
            str(entry.get("userMessage") or entry.get("reason") or ""),
        )
        texts.setdefault(": ".join(part for part in (name, text) if part), []).append(
            str(entry.get("nodePool") or "")
        )
    pools = {text: ", ".join(filter(None, names)) for text, names in texts.items()}
    return _joined(
        *(f"{text} (node pool {names})" if names else text for text, names in pools.items())
    )


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _seconds(data: Mapping[str, Any]) -> float | None:
    """The time of its end, in seconds since the epoch, or None if the API does not give it."""
    for key in ("completedAt", "deletedAt", "phaseUpdatedAt"):
        try:
            return datetime.fromisoformat(str(data.get(key)).replace("Z", "+00:00")).timestamp()
        except ValueError:
            continue
    return None
