# SPDX-License-Identifier: Apache-2.0
"""The options of `jobs list` that select runs by state, workload, name, age and node."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from llmb.cli import options
from llmb.cli.choice import moment_of, node_option, ran_on, session_option, workload_test
from llmb.cli.context import CliContext
from llmb.contract.record import RunRecord
from llmb.contract.state import (
    ACTIVE,
    CANCELLED,
    COMPLETED,
    ENDS,
    KNOWN,
    NOT_SUBMITTED,
    UNKNOWN,
    WAITING,
    JobState,
)
from llmb.core.names import suggest
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.run.store import nodes_of

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
    *(
        state.lower()
        for state in sorted({*KNOWN, UNKNOWN, NOT_SUBMITTED})
        if state.lower() not in GROUPS
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Conditions for a run to be listed, or empty and None mean any."""

    states: tuple[str, ...] = ()  # words of STATES
    workloads: tuple[str, ...] = ()  # keys, or keys with a size
    name: str | None = None  # a pattern of the experiment's name
    since: str | None = None  # an age or a date
    live: bool = False
    nodes: tuple[str, ...] = ()  # the run used one of these
    sessions: tuple[str, ...] = ()  # ids, names, last or all; empty: the newest, and open runs

    @property
    def is_any(self) -> bool:
        """True if every run is listed."""
        return self == Filters()


def filter_options(command: F) -> F:
    """Add the options of Filters, named as its fields are."""
    for option in (
        session_option,
        node_option,
        click.option(
            "--since", metavar="AGE", help="Submitted in the last 12h, 2d, 1w, or since a date."
        ),
        click.option(
            "--name", metavar="PATTERN", help="Only names with this text, or matching * and ?."
        ),
        click.option(
            "-w", "--workloads", multiple=True, callback=options.words, metavar="W", help=_WORKLOADS
        ),
        click.option(
            "--state", "states", multiple=True, callback=_states, metavar="STATE", help=_STATE
        ),
        click.option("--live", is_flag=True, help="Only runs that have not ended."),
    ):
        command = option(command)
    return command


_WORKLOADS = "Only these workloads, as key or key_size."
_STATE = "waiting, running, ended, failed, or a Slurm state."


def _states(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """The words of --state in lower case. Raises UsageError."""
    states = tuple(word.lower() for word in options.words(context, parameter, value))
    if unknown_word := next((word for word in states if word not in STATES), None):
        raise UsageError(
            f"--state: no run has the state '{unknown_word}'",
            hint=suggest(unknown_word, STATES),
            code="state-unknown",
            key="--state",
            value=unknown_word,
        )
    return states


def choose(context: CliContext, runs: Sequence[RunRecord], filters: Filters) -> list[RunRecord]:
    """Those of ``runs`` with the workload, name and age of ``filters``. Raises UsageError."""
    is_selected = workload_test(
        context, filters.workloads, {(run.job.workload, run.job.model_size) for run in runs}
    )
    earliest = 0.0 if filters.since is None else moment_of(filters.since)
    pattern = filters.name and filters.name.lower()
    if pattern and not set(pattern) & set("*?["):
        pattern = f"*{pattern}*"
    return [
        run
        for run in runs
        if run.submitted_at >= earliest
        and is_selected(run.job.workload, run.job.model_size)
        and (not pattern or fnmatchcase(run.name.lower(), pattern))
    ]


def selects(run: RunRecord, state: JobState, filters: Filters) -> bool:
    """Return True for a run in ``state`` that the states and nodes of ``filters`` select."""
    if filters.live and state.is_end:
        return False
    if filters.nodes and not ran_on(filters.nodes, nodes_of(run, state)):
        return False
    return not filters.states or any(
        state.state in GROUPS[word] if word in GROUPS else state.state.lower() == word
        for word in filters.states
    )
