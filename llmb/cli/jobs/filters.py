# SPDX-License-Identifier: Apache-2.0
"""Which runs `jobs list` shows: by state, workload, name, age and node."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from llmb.cli import options
from llmb.cli.context import Context
from llmb.cli.results import node_option, ran_on, workload_test
from llmb.errors import UsageError
from llmb.runs.record import RunRecord
from llmb.runs.state import ACTIVE, CANCELLED, COMPLETED, ENDS, KNOWN, NOT_SUBMITTED, UNKNOWN, WAITING, JobState
from llmb.runs.store import nodes_of
from llmb.text.names import suggest
from llmb.text.times import since

F = TypeVar("F", bound=Callable[..., Any])

# Words of --state that mean several of the scheduler's states.
GROUPS = {
    "live": KNOWN - ENDS | {UNKNOWN, NOT_SUBMITTED},
    "waiting": WAITING,
    "pending": WAITING,
    "running": ACTIVE,
    "ended": ENDS,
    "failed": ENDS - {COMPLETED, CANCELLED},
}
STATES = (
    *GROUPS,
    *(state.lower() for state in sorted({*KNOWN, UNKNOWN, NOT_SUBMITTED}) if state.lower() not in GROUPS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What a run must be to be listed; empty and None mean any.

    ``states``: words of STATES; ``workloads``: keys or keys with a size; ``name``: a pattern of the experiment's name;
    ``since``: an age or a date; ``live``: as the state; ``nodes``: one of these is among its own.
    """

    states: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    name: str | None = None
    since: str | None = None
    live: bool = False
    nodes: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        """Whether every run is listed."""
        return self == Filters()


def filter_options(command: F) -> F:
    """Add the options of Filters; the command takes them by the names of its fields."""
    for option in (
        node_option,
        click.option("--since", metavar="AGE", help="Submitted in the last 12h, 2d, 1w, or since a date."),
        click.option("--name", metavar="PATTERN", help="Only names with this text, or matching * and ?."),
        click.option("-w", "--workloads", multiple=True, callback=options.words, metavar="W", help=_WORKLOADS),
        click.option("--state", "states", multiple=True, callback=_states, metavar="STATE", help=_STATE),
        click.option("--live", is_flag=True, help="Only runs that have not ended."),
    ):
        command = option(command)
    return command


_WORKLOADS = "Only these workloads, as key or key_size."
_STATE = "waiting, running, ended, failed, or a Slurm state."


def _states(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The words of --state in lower case. Raises UsageError."""
    found = tuple(word.lower() for word in options.words(context, parameter, value))
    if wrong := next((word for word in found if word not in STATES), None):
        message, hint = f"--state: no run has the state '{wrong}'", suggest(wrong, STATES)
        raise UsageError(message, hint=hint, code="state-unknown", key="--state", value=wrong)
    return found


def choose(context: Context, runs: Sequence[RunRecord], filters: Filters) -> list[RunRecord]:
    """Those of ``runs`` with the workload, name and age of ``filters``. Raises UsageError."""
    wanted = workload_test(context, filters.workloads, {(run.job.workload, run.job.model_size) for run in runs})
    earliest, pattern = _earliest(filters.since), filters.name and filters.name.lower()
    if pattern and not set(pattern) & set("*?["):
        pattern = f"*{pattern}*"
    return [
        run
        for run in runs
        if run.submitted_at >= earliest
        and wanted(run.job.workload, run.job.model_size)
        and (not pattern or fnmatchcase(run.name.lower(), pattern))
    ]


def _earliest(text: str | None) -> float:
    try:
        return since(text, time.time()) if text is not None else 0.0
    except ValueError as error:
        message, hint = f"--since: '{text}' {error}", "--since 2d"
        raise UsageError(message, hint=hint, code="value-not-allowed", key="--since", value=text) from error


def selects(run: RunRecord, state: JobState, filters: Filters) -> bool:
    """Whether a run in ``state`` has one of the states and one of the nodes of ``filters``."""
    if filters.live and state.is_end:
        return False
    if filters.nodes and not ran_on(filters.nodes, nodes_of(run, state)):
        return False
    return not filters.states or any(
        state.state in GROUPS[word] if word in GROUPS else state.state.lower() == word for word in filters.states
    )
