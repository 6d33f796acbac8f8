# SPDX-License-Identifier: Apache-2.0
"""Causes of failures: the table of failures.yaml, a cause with its fix, and groups of causes."""

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from llmb.contract.failures import Failure
from llmb.contract.state import JobState
from llmb.core import typed, yamlfile
from llmb.core.grouping import grouped
from llmb.core.values import dataclass

PYTHON = "Python"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureTable:
    """The content of failures.yaml."""

    causes: tuple[Failure, ...]
    python: tuple[str, ...]
    warnings: tuple[str, ...]
    consequences: tuple[str, ...]
    noise: tuple[str, ...]
    states: dict[str, str]
    #: States that explain a failure better than Python errors and rows with ``follows``.
    hard_ends: tuple[str, ...]
    exit_codes: dict[str, str]
    fixes: dict[str, str]  #: the next thing to do, by class of failure


@lru_cache(maxsize=1)
def table() -> FailureTable:
    """Return the table of failures, in order of precedence."""
    return typed.read(
        FailureTable, yamlfile.load_packaged(Path(__file__).with_name("failures.yaml"))
    )


@lru_cache(maxsize=256)  # the same lines recur
def row_of(line: bytes, more: tuple[Failure, ...] = ()) -> Failure | None:
    """Return the first row that describes the line, of the table and of ``more``."""
    return next((row for row in rows(more) if row.fits(line)), None)


def rows(more: tuple[Failure, ...] = ()) -> tuple[Failure, ...]:
    """Return the rows of the table, then ``more`` of plugins, and last the row for any error."""
    *specific, any_error = table().causes
    return (*specific, *more, any_error)


def kind_of_end(state: JobState) -> str | None:
    """Return the class of failure from the state, its reason or the exit code, or None."""
    row = row_of(state.reason.encode("utf-8", "replace"))
    return (
        table().states.get(state.state)
        or (row and row.kind)
        or table().exit_codes.get(str(state.exit_code))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The reason why a run failed."""

    kind: str  #: the class of failure
    line: str  #: the line of the log that shows it, safe to print
    rank: int | None = None  #: from the line's prefix
    log: str | None = None  #: the name of the file, if several were read
    advice: str = ""  #: a fix for this failure alone

    @property
    def fix(self) -> str:
        """The next thing to do."""
        return self.advice or table().fixes.get(self.kind, "")

    def __str__(self) -> str:
        origin = "" if self.rank is None else f" (rank {self.rank})"
        return f"{self.kind}{origin}: {self.line}"


CANCELLED_KIND = "cancelled"  # as in failures.yaml
# what differs between two messages of the same error
_VARYING = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Runs that failed for the same reason: their names, and the cause of the first of them."""

    cause: Cause
    runs: tuple[str, ...]

    def __str__(self) -> str:
        count = "1 run" if len(self.runs) == 1 else f"{len(self.runs)} runs"
        return f"{count}: {self.cause}"


def group_failures(failures: Iterable[tuple[str, Cause]]) -> list[FailureGroup]:
    """Group runs by class of failure: the largest group first, cancelled runs last.

    Python errors are grouped by their text, and causes with ``advice`` by that.
    """
    groups = grouped(
        (
            (
                cause.kind,
                _VARYING.sub("#", cause.line) if cause.kind == PYTHON else cause.advice,
            ),
            (run, cause),
        )
        for run, cause in failures
    )
    failure_groups = [
        FailureGroup(cause=members[0][1], runs=tuple(run for run, _ in members))
        for members in groups.values()
    ]
    return sorted(
        failure_groups, key=lambda group: (group.cause.kind == CANCELLED_KIND, -len(group.runs))
    )
