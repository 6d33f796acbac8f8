# SPDX-License-Identifier: Apache-2.0
"""From the results of past runs to observations: which nodes ran, and how fast that was.

A result is an object of ``llmb-run results --format json``. Pure but for the states of runs, which
say the nodes that the scheduler gave them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Any

from llmb_nodes import history, slow_nodes

if TYPE_CHECKING:
    from llmb import api

#: Older runs say little about a node of today.
DAYS = 30
DAY = 86400.0  # seconds
_FAST_QUARTER = 0.75

ResultRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run that was measured, with all its nodes."""

    id: str
    #: When it was submitted, in seconds since the epoch.
    time: float
    nodes: frozenset[str]
    gpus: int
    #: Equal for runs whose speeds may be compared.
    configuration: str
    #: In any unit, higher is better.
    speed: float


def first_day(runs: Iterable[api.RunRecord]) -> str:
    """Return the day from which runs count, as ``2026-11-01``."""
    newest = max(run.submitted_at for run in runs)
    return day(newest - DAYS * DAY)


def day(moment: float) -> str:
    """Return the day of a time, as ``2026-11-01``."""
    return time.strftime("%Y-%m-%d", time.localtime(moment))


def measured(runs: Iterable[api.RunRecord], rows: Iterable[ResultRow]) -> list[MeasuredRun]:
    """Return the runs whose speed and nodes are known, those of the newest DAYS.

    A run without one of its nodes in the log is omitted, because the missing one may be the slow
    one.
    """
    by_id = {run.id: run for run in runs}
    candidates = [
        (run, row)
        for row in rows
        if (run := by_id.get(str(row["run"]))) is not None and run.job.workload != history.WORKLOAD
    ]
    candidates.sort(key=lambda pair: pair[0].submitted_at, reverse=True)
    found: list[MeasuredRun] = []
    for run, row in candidates:  # newest first: the files of the others are not read
        if found and run.submitted_at < found[0].time - DAYS * DAY:
            break
        if (measured_run := _measured(run, row)) is not None:
            found.append(measured_run)
    return found


def _measured(run: api.RunRecord, row: ResultRow) -> MeasuredRun | None:
    figure = (row["metrics"] or {}).get(row["headline"])
    settings = row["configuration"]
    if row["status"] != "Success" or row["invalid"] or figure is None or settings is None:
        return None
    nodes = nodes_of(run, row)
    if len(nodes) < run.launch.nodes or not figure["mean"] > 0:
        return None
    mean = float(figure["mean"])
    return MeasuredRun(
        id=run.id,
        time=run.submitted_at,
        nodes=nodes,
        gpus=int(settings["scale"]),
        configuration=json.dumps([settings, row["headline"], row["window"]], sort_keys=True),
        speed=mean if figure["better"] == "higher" else 1 / mean,
    )


def nodes_of(run: api.RunRecord, row: ResultRow) -> frozenset[str]:
    """Return the nodes that the scheduler gave a run, else those in its log."""
    from llmb import api

    job_nodes = api.expand_nodes(history.nodes_of_job(run))
    return frozenset(job_nodes or (row["log"] or {}).get("hosts") or ())


def observations(runs: Sequence[MeasuredRun]) -> list[slow_nodes.Observation]:
    """Return an observation for each day and set of nodes.

    The repeats of a day on the same nodes, and its other configurations there, have the day's
    conditions in common. So they are one observation, not many.
    """
    groups: dict[tuple[str, frozenset[str]], list[_Compared]] = {}
    for compared in _compared(runs):
        groups.setdefault((day(compared.run.time), compared.run.nodes), []).append(compared)
    return [
        _observation(day, nodes, [*_most_telling(members)])
        for (day, nodes), members in groups.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """A run compared with all runs of its configuration."""

    run: MeasuredRun
    #: As a fraction of the speed of the fast quarter.
    speed: float
    #: The nodes that all these runs have.
    in_all: frozenset[str]


def _observation(
    day: str, nodes: frozenset[str], members: Sequence[_Compared]
) -> slow_nodes.Observation:
    """Return the observation of runs of a day on the same nodes."""
    return slow_nodes.Observation(
        day=day,
        nodes=nodes,
        speed=median(compared.speed for compared in members),
        time=max(compared.run.time for compared in members),
        runs=tuple(compared.run.id for compared in members),
        gpus=max(compared.run.gpus for compared in members),
        not_compared=frozenset[str]().union(*(compared.in_all for compared in members)),
    )


def _most_telling(members: Sequence[_Compared]) -> Iterator[_Compared]:
    """Yield those whose configuration has the fewest nodes in all its runs.

    The only run of a configuration has the speed of its fast quarter, whatever its nodes are. So
    it would hide how slow the others are.
    """
    fewest = min(len(compared.in_all) for compared in members)
    yield from (compared for compared in members if len(compared.in_all) == fewest)


def _compared(runs: Iterable[MeasuredRun]) -> Iterator[_Compared]:
    """Yield each run with its speed as a fraction of that of its configuration's fast quarter.

    The median of all would be slow itself if most of the runs had a slow node.
    """
    by_configuration: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        by_configuration.setdefault(run.configuration, []).append(run)
    for members in by_configuration.values():
        speeds = sorted(run.speed for run in members)
        usual = speeds[ceil(_FAST_QUARTER * (len(speeds) - 1))]
        in_all = frozenset.intersection(*(run.nodes for run in members))
        yield from (_Compared(run=run, speed=run.speed / usual, in_all=in_all) for run in members)
