# SPDX-License-Identifier: Apache-2.0
"""Causes of failures: the table of failures.yaml, a cause with its fix, and the grouping of many runs' causes."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from llmb.runs.state import JobState
from llmb.text import typed, yamlfile

PYTHON = "Python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One row of the table: a line with any of ``text``, any of ``beside`` where given, and none of ``without``.

    ``follows``: another rank's failure causes it as well. ``not_behind``: no cause after a line with any of these.
    ``weak``: a cause only if the log has no other.
    """

    kind: str
    text: tuple[str, ...]
    beside: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    follows: bool = False
    weak: bool = False
    not_behind: tuple[str, ...] = ()

    def fits(self, line: bytes) -> bool:
        """Whether the row describes the line."""
        return (
            any_in(self.text, line)
            and (not self.beside or any_in(self.beside, line))
            and not (self.without and any_in(self.without, line))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The content of failures.yaml; ``fixes``: what to do next, for each class.

    ``hard_ends``: states that explain a failure better than Python errors and rows with ``follows`` in the log.
    """

    causes: tuple[Signature, ...]
    python: tuple[str, ...]
    warnings: tuple[str, ...]
    consequences: tuple[str, ...]
    noise: tuple[str, ...]
    states: dict[str, str]
    hard_ends: tuple[str, ...]
    exit_codes: dict[str, str]
    fixes: dict[str, str]


@lru_cache(maxsize=1)
def table() -> Table:
    """The table of failures, in order of precedence."""
    return typed.read(Table, yamlfile.load(Path(__file__).with_name("failures.yaml")))


@lru_cache(maxsize=256)  # the same lines recur
def row_of(line: bytes) -> Signature | None:
    """The first row of the table that describes the line."""
    return next((row for row in table().causes if row.fits(line)), None)


def kind_of_end(state: JobState) -> str | None:
    """The class of failure from the scheduler's state, its reason or the exit code; None where they do not show it."""
    row = row_of(state.reason.encode("utf-8", "replace"))
    return table().states.get(state.state) or (row and row.kind) or table().exit_codes.get(str(state.exit_code))


def any_in(words: tuple[str, ...], line: bytes) -> bool:
    """Whether ``line`` contains one of ``words``."""
    return any(word in line for word in _encoded(words))


@lru_cache(maxsize=1024)
def _encoded(words: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a run failed: the class of failure and the line of the log that shows it, safe to print.

    ``rank``: from the line's prefix. ``log``: the name of the file, where several were read. ``advice``: a fix for this
    failure alone, where one is known.
    """

    kind: str
    line: str
    rank: int | None = None
    log: str | None = None
    advice: str = ""

    @property
    def fix(self) -> str:
        """What to do next."""
        return self.advice or table().fixes.get(self.kind, "")

    def __str__(self) -> str:
        where = "" if self.rank is None else f" (rank {self.rank})"
        return f"{self.kind}{where}: {self.line}"


CANCELLED_KIND = "cancelled"  # as in failures.yaml
_VARYING = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)  # what differs between two messages of the same error


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs that failed for the same reason: their names, and the cause of the first of them."""

    cause: Cause
    runs: tuple[str, ...]

    def __str__(self) -> str:
        count = "1 run" if len(self.runs) == 1 else f"{len(self.runs)} runs"
        return f"{count}: {self.cause}"


def group_failures(failures: Iterable[tuple[str, Cause]]) -> list[Group]:
    """The runs and their causes, grouped by class: the largest group first, cancelled runs last.

    Python errors are grouped by their text, and causes with ``advice`` by that.
    """
    groups: dict[tuple[str, str], list[tuple[str, Cause]]] = {}
    for run, cause in failures:
        text = _VARYING.sub("#", cause.line) if cause.kind == PYTHON else cause.advice
        groups.setdefault((cause.kind, text), []).append((run, cause))
    made = [Group(cause=members[0][1], runs=tuple(run for run, _ in members)) for members in groups.values()]
    return sorted(made, key=lambda group: (group.cause.kind == CANCELLED_KIND, -len(group.runs)))
