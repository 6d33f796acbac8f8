# SPDX-License-Identifier: Apache-2.0
"""What is left of a list that was submitted before: jobs whose like has not succeeded, runs or waits here. Pure."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields

from llmb.results.result import Configuration
from llmb.runs.job import Job
from llmb.runs.record import RunRecord
from llmb.submission.submit import Prepared

_JOBS = {own.name for own in fields(Job)} - {"env"}
_SAME = (*(own.name for own in fields(Configuration) if own.name in _JOBS), "repeat", "max_steps", "switches")


def key_of(job: Job) -> Hashable:
    """Equal for two jobs of one configuration and one repeat."""
    return *(getattr(job, name) for name in _SAME), *sorted(job.env.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The jobs to submit, and the runs that stand for the others: those that succeeded, and those under way."""

    items: tuple[Prepared, ...]
    done: tuple[RunRecord, ...]
    live: tuple[RunRecord, ...]


def remaining(items: Sequence[Prepared], succeeded: Sequence[RunRecord], live: Sequence[RunRecord]) -> Remaining:
    """What is left of ``items``. A run stands for one job alone, where the list has the same job several times."""
    unused = {"done": _by_key(succeeded), "live": _by_key(live)}
    used: dict[str, list[RunRecord]] = {"done": [], "live": []}
    left = []
    for item in items:
        kind = next((kind for kind in unused if unused[kind].get(key_of(item.job))), None)
        if kind is None:
            left.append(item)
        else:
            used[kind].append(unused[kind][key_of(item.job)].pop(0))
    return Remaining(items=tuple(left), done=tuple(used["done"]), live=tuple(used["live"]))


def _by_key(runs: Sequence[RunRecord]) -> dict[Hashable, list[RunRecord]]:
    found: dict[Hashable, list[RunRecord]] = {}
    for run in runs:
        found.setdefault(key_of(run.job), []).append(run)
    return found
