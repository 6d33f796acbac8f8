# SPDX-License-Identifier: Apache-2.0
"""Prints the list of runs, one run, and the log of one."""

import codecs
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import yaml

from llmb.cli.context import Context, say
from llmb.cli.output import print_runs
from llmb.cli.results import states_of
from llmb.cli.submit.preview import job_data
from llmb.errors import UsageError
from llmb.logs.scan import strip_escapes
from llmb.runs.record import RunRecord
from llmb.runs.state import UNKNOWN, JobState
from llmb.submission.follow import poll
from llmb.system import console
from llmb.text.tables import Column, to_json
from llmb.text.times import clock, day_and_time, iso

NO_RUN = "no run yet; submit some: llmb-run submit-all jobs.txt"
_TABLE = ("id", "experiment", "parameters", "repeat", "state", "submitted", "ran", "reason")
_DATA = ("id", "scheduler_id", "attempt", "experiment", "repeat", "state", "submitted", "ran", "reason", "parameters")
_OPTIONAL = ("parameters", "repeat", "submitted", "ran")


def list_runs(context: Context, fmt: str, *, live: bool) -> None:
    """Print every run and its state; only those that have not ended if ``live``."""
    runs = context.runs()
    states = states_of(context, runs)
    rows = [_row(run, states[run.id]) for run in runs if not live or not states[run.id].is_end]
    for one in context.unreadable if not live else ():
        known = {"experiment": one.directory.parent.name, "state": UNKNOWN, "reason": one.reason}
        rows.append(dict.fromkeys(_DATA) | known)
    if not rows:
        say("no run is waiting or running" if live else NO_RUN)
    print_runs(*table_of(rows, fmt), fmt)


def _row(run: RunRecord, state: JobState) -> dict[str, Any]:
    ran = clock((state.ended or time.time()) - state.started) if state.started is not None else None
    return {
        "id": run.id,
        "scheduler_id": run.scheduler_id,
        "attempt": run.attempt,
        "experiment": run.job.experiment_name,
        "repeat": run.job.repeat,
        "state": state.state,
        "submitted": iso(run.submitted_at),
        "ran": ran,
        "reason": state.reason,
        "parameters": dict(run.job.parameters),
    }


def table_of(rows: Sequence[dict[str, Any]], fmt: str) -> tuple[list[Column], list[dict[str, Any]]]:
    """The columns and rows of the list; ``rows`` have the values of _DATA.

    A table shows a later attempt after the state, repeats and reasons only where there are any, and the workload's own
    parameters in which the runs differ.
    """
    if fmt != "table":
        return _columns(_DATA), list(rows)
    differing = _differing([row.get("parameters") or {} for row in rows])
    shown = {
        "parameters": bool(differing),
        "repeat": any(row["repeat"] not in (None, 1) for row in rows),
        "reason": any(row["reason"] for row in rows),
    }
    columns = _columns([name for name in _TABLE if shown.get(name, True)])
    numbers = [f" #{row['attempt']}" if (row["attempt"] or 1) > 1 else "" for row in rows]
    return columns, [
        {
            **row,
            "state": f"{row['state']}{number}",
            "parameters": " ".join(
                f"{name}={value}" for name, value in (row.get("parameters") or {}).items() if name in differing
            ),
        }
        for row, number in zip(rows, numbers, strict=True)
    ]


def _differing(all_values: Sequence[Mapping[str, str]]) -> set[str]:
    """The names of parameters with several values."""
    found: dict[str, set[str]] = {}
    for values in all_values:
        for name, value in values.items():
            found.setdefault(name, set()).add(value)
    return {name for name, values in found.items() if len(values) > 1}


def _columns(names: Sequence[str]) -> list[Column]:
    show = {"submitted": lambda text: day_and_time(text)[:16]}
    return [
        Column(
            key=name, heading=name.replace("_", " ").capitalize(), show=show.get(name, str), optional=name in _OPTIONAL
        )
        for name in names
    ]


def show(context: Context, name: str, fmt: str) -> None:
    """Print one run: its job, state, files and environment."""
    found = context.runs((name,))[0]
    state = states_of(context, [found])[found.id]
    before = [
        {"scheduler_id": one.scheduler_id, "state": one.state.state, "reason": one.state.reason or None}
        for one in found.history
    ]
    data = {
        "id": found.id,
        "scheduler_id": found.scheduler_id,
        "attempt": found.attempt,
        "before": before,
        "state": state.state,
        "reason": state.reason or None,
        "fix": state.fix or None,
        "exit_code": state.exit_code,
        "submitted": iso(found.submitted_at),
        "started": iso(state.started),
        "ended": iso(state.ended),
        "directory": str(found.directory),
        "log": str(found.log),
        "script": str(found.script),
        "job": job_data(found.job),
        "environment": dict(found.launch.environment),
    }
    console.echo(to_json(data) if fmt == "json" else yaml.safe_dump(data, sort_keys=False), nl=False)


def print_log(context: Context, name: str, attempt: int | None, *, follows: bool, batch: bool) -> None:
    """Print the log of one run. Raises UsageError for an attempt that it does not have."""
    found = context.runs((name,))[0]
    of, last = found, attempt in (None, found.attempt)
    if attempt is not None and attempt > found.attempt:
        hint = f"its last is {found.attempt}"
        raise UsageError(f"{found.id} has no attempt {attempt}", hint=hint, code="attempt-unknown", value=attempt)
    if attempt is not None:
        of = replace(found, attempt=attempt)
    cluster = context.need_cluster()
    path = of.batch_log if batch else of.log
    if tail(path, sys.stdout, ended=lambda: not (follows and last) or poll(cluster, [found])[found.id].is_end):
        return
    if not last:
        say(f"attempt {of.attempt} of {found.id} has no log")
        return
    state = poll(cluster, [found])[found.id]
    nothing = ("has an empty log" if path.exists() else "has no log") if state.is_over else "has no log yet"
    say(f"{found.id} {nothing}: {state.state}{': ' + state.reason if state.reason else ''}")


_EVERY = 0.3  # seconds
# May continue in the next bytes: an escape sequence, or a line end of two characters.
_OPEN = re.compile(rb"(?:\r|\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,200}\x1b?)?)\Z")
_LINE_END = re.compile(r"\r\n?")  # a progress bar returns to the start of its line


def tail(path: Path, out: TextIO, *, ended: Callable[[], bool]) -> bool:
    """Copy the log ``path`` to ``out`` until its writer has ``ended``; False where it was empty.

    Control characters do not reach the terminal.
    """
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    position, kept = 0, b""
    while True:
        last = ended()  # before reading, so that everything written before the end is read
        if path.exists():
            with path.open("rb") as stream:
                stream.seek(position)
                while chunk := stream.read(1 << 16):
                    position += len(chunk)
                    data = kept + chunk
                    open_ = _OPEN.search(data, max(0, len(data) - 256))
                    kept = data[open_.start() :] if open_ else b""
                    out.write(_printable(decode(strip_escapes(data[: len(data) - len(kept)]))))
            out.flush()
        if last:
            out.write(_printable(decode(kept, True)))
            out.flush()
            return position > 0
        time.sleep(_EVERY)


def _printable(text: str) -> str:
    """``text`` with a blank for each control character."""
    lines = _LINE_END.sub("\n", text)
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in lines)
