# SPDX-License-Identifier: Apache-2.0
"""Groups the failures of many runs, so that one cause is told once with its fix."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from llmb.failures.cause import Cause
from llmb.failures.table import PYTHON

CANCELLED_KIND = "cancelled"  # as failures.yaml has it
_OWN = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)  # what differs between two tellings of the same error


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs that failed for the same reason: their names, and the cause as the first of them has it."""

    cause: Cause
    runs: tuple[str, ...]

    def __str__(self) -> str:
        count = "1 run" if len(self.runs) == 1 else f"{len(self.runs)} runs"
        return f"{count}: {self.cause}"


def group_failures(failures: Iterable[tuple[str, Cause]]) -> list[Group]:
    """The runs with their causes, those of one class together, the largest group first, what was cancelled last.

    Python errors go by their text, and what has a fix of its own by that.
    """
    groups: dict[tuple[str, str], list[tuple[str, Cause]]] = {}
    for run, cause in failures:
        text = _OWN.sub("#", cause.line) if cause.kind == PYTHON else cause.advice
        groups.setdefault((cause.kind, text), []).append((run, cause))
    made = [Group(cause=members[0][1], runs=tuple(run for run, _ in members)) for members in groups.values()]
    return sorted(made, key=lambda group: (group.cause.kind == CANCELLED_KIND, -len(group.runs)))
