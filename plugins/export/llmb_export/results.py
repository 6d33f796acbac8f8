# SPDX-License-Identifier: Apache-2.0
"""The results that are exported: the object of ``results --format json``, and times of runs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from llmb import api

Row = Mapping[str, Any]  # an object of `results`
Outcome = Literal["failed", "undecided", "open", "warned", "passed"]

RUN_FAILED = 3  # the exit code of llmb-run if a run failed or has a bad verdict
VERDICTS = ("PASS", "WARN", "SUSPICIOUS", "INCONCLUSIVE", "FAIL", "INVALID", "NO_REFERENCE")
#: The verdicts, those first that decide for a series with several.
WORST_FIRST = ("FAIL", "INVALID", "INCONCLUSIVE", "SUSPICIOUS", "WARN", "NO_REFERENCE", "PASS")
#: The keys of a run that exports read and that both `results` and `parse` write.
_KEYS = (
    *("experiment", "status", "reason", "verdict", "verdict_reason", "ratio", "pooled_ratio"),
    *("configuration", "headline", "metrics", "nodes"),
)
_BAD = ("FAIL", "INVALID")
_OPEN = ("Pending", "Running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """When a run was submitted and ended (seconds since 1970), and how long it ran (seconds)."""

    submitted: float
    ran: float | None = None
    ended: float | None = None


@dataclass(frozen=True, kw_only=True)
class Results:
    """The object of ``results --format json``, with what it does not say."""

    data: Mapping[str, Any]
    #: Of each run by its id, as far as they are known.
    times: Mapping[str, Times] = field(default_factory=dict)
    #: The exit code of the command that printed it.
    exit_code: int = 0

    @property
    def rows(self) -> Sequence[Row]:
        """The object of each run."""
        rows: Sequence[Row] = self.data["results"]
        return rows

    def times_of(self, row: Row) -> Times | None:
        """Return the times of a run: its own, else those of its session."""
        if (times := self.times.get(row.get("run") or "")) is not None:
            return times
        begun = self.session_began(row)
        return Times(submitted=begun) if isfinite(begun) else None

    def session_began(self, row: Row) -> float:
        """Return when a run's session began, -inf if that is unknown."""
        return self._sessions.get(row.get("session"), -inf)

    @cached_property
    def _sessions(self) -> Mapping[str | None, float]:
        sessions = self.data.get("sessions") or ()
        return {session["id"]: _seconds(session["created"]) for session in sessions}


def select(context: api.CommandContext, words: Sequence[str]) -> Results:
    """Return the results that ``llmb-run results`` prints with ``words``. Raises LlmbError."""
    code, text = context.call(["results", *words, "--format", "json"])
    data = _parsed(text)
    return Results(data=data, times=_times_of(context, data["results"]), exit_code=code)


def read(text: str, name: str) -> Results:
    """Return the results in a file ``name`` that llmb wrote. Raises UsageError."""
    from llmb import api

    try:
        data = _parsed(text)
    except ValueError:
        data = None
    if missing := _missing_key(data):
        hint = "write one: llmb-run results --format json > results.json"
        message = f"{name} has no results of llmb: the key '{missing}' is missing"
        raise api.UsageError(message, hint=hint, code="results-missing", key=missing, value=name)
    outcomes = map(outcome_of, data["results"])
    return Results(data=data, exit_code=RUN_FAILED if "failed" in outcomes else 0)


def _missing_key(data: Any) -> str:
    """Return the first key that results of llmb have and ``data`` lacks, empty if none."""
    rows = data.get("results") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        return "results"
    return next((key for row in rows for key in _KEYS if _lacks(row, key)), "")


def _lacks(row: Any, key: str) -> bool:
    return not isinstance(row, dict) or key not in row


def _parsed(text: str) -> Any:
    """Return the data of a JSON text, whose strings other programs can read.

    A name that is not UTF-8 has characters that no encoding has. They become ``\\udcff``, as
    different names must stay different.
    """
    return _encodable(json.loads(text))


def _encodable(data: Any) -> Any:
    if isinstance(data, str):
        return data.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(data, dict):
        return {_encodable(key): _encodable(value) for key, value in data.items()}
    return [_encodable(item) for item in data] if isinstance(data, list) else data


def _times_of(context: api.CommandContext, rows: Sequence[Row]) -> dict[str, Times]:
    """Return the times of runs in the install directory. Those of an archive have none."""
    from llmb import api

    names = {row["run"] for row in rows if row.get("run")}
    try:
        runs = context.runs() if names else []
    except api.LlmbError:  # runs of an archive, outside of an install directory
        return {}
    return {run.id: _times(run) for run in runs if run.id in names}


def _times(run: api.RunRecord) -> Times:
    from llmb import api

    state = api.seen_state(run) or api.JobState(state="UNKNOWN")
    ended = state.ended if state.is_end else None
    until = ended if state.is_end else time.time()
    ran = None if state.started is None or until is None else max(0.0, until - state.started)
    return Times(submitted=run.submitted_at, ran=ran, ended=ended)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def outcome_of(row: Row) -> Outcome:
    """Return the outcome of a run: of its verdict if it succeeded and has one."""
    if row["status"] in _OPEN:
        return "open"
    if row["status"] in ("Failed", "Cancelled") or row["verdict"] in _BAD:
        return "failed"
    if row["status"] != "Success" or row["verdict"] in ("INCONCLUSIVE", "NO_REFERENCE"):
        return "undecided"
    return "warned" if row["verdict"] in ("WARN", "SUSPICIOUS") else "passed"


def word_of(row: Row) -> str:
    """Return the verdict of a run, else its status. A run that failed may be INVALID."""
    return str(row["verdict"] or row["status"])


def reason_of(row: Row) -> str:
    """Return why a run has its verdict or its status, empty without a reason."""
    reasons = (row["reason"], row["verdict_reason"])
    first, second = reasons if row["status"] != "Success" else reversed(reasons)
    return str(first or second or "")


def ratio_of(row: Row) -> float | None:
    """Return the ratio that the verdict is about: of all repeats, else of this run."""
    ratio: float | None = row["ratio"] if row["pooled_ratio"] is None else row["pooled_ratio"]
    return ratio
