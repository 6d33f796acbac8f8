# SPDX-License-Identifier: Apache-2.0
"""Prints how the throughput of each model grows with the scale."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from llmb.cli.compare.side import find_side
from llmb.cli.context import Context, say
from llmb.cli.output import print_runs
from llmb.cli.results.choose import Choice
from llmb.cli.results.judged import exit_code
from llmb.errors import UsageError
from llmb.results import CANCELLED, FAILED, SUCCESS, UNKNOWN, Result
from llmb.text.narrow import Level
from llmb.verdict import why_invalid
from llmb.verdict.compare import measures
from llmb.verdict.scaling import Point, cells, columns, efficiencies, settings

_NAMED = 8  # runs in a line
_SHORT = {
    "step_time_s": "step (s)",
    "tokens_per_second_per_gpu": "tok/s/GPU",
    "efficiency": "eff. %",
    "scaling": "kind",
}


def print_scaling(context: Context, ours: str | None, choice: Choice, fmt: str) -> int:
    """Print the scaling efficiency of each model among the runs ``ours``; exit code 3 when one failed, else 0."""
    if fmt == "junit":
        raise UsageError("--scaling has no verdict for JUnit", hint="--format table, json, csv or md")
    results = find_side(context, ours, choice).results
    points = efficiencies(results)
    print_runs(_levels(points, fmt), fmt, name="workload", below="settings")
    if results and not points:
        say("no model was measured at two scales or more with the same settings")
    for line in left_out(results, points):
        say(line)
    return exit_code(results)


def _levels(points: Sequence[Point], fmt: str) -> Iterator[Level]:
    """The table with all of it first, then with less for narrow terminals."""
    rows = [cells(point) for point in points]
    yield (level := Level(columns(points, fmt), rows))
    rows = [{**row, "workload": str(row["workload"]).removeprefix("pretrain_")} for row in rows]
    short = [replace(column, heading=_SHORT.get(column.key, column.heading)) for column in level.columns]
    yield (level := Level(short, rows))
    yield (level := level.without("gbs", said="batch"))
    yield level.without("step_time_s", said="step time")


def left_out(results: Iterable[Result], points: Iterable[Point] = ()) -> list[str]:
    """A line for each reason why runs are not among the points, and what that means for the exit code."""
    results = list(results)
    shown = {point.series.settings for point in points}
    alone = [one for one in results if measures(one) and one.configuration is not None and not shown & settings(one)]
    reasons = {
        "failed: exit code 3": [one for one in results if one.status == FAILED],
        "cancelled: exit code 3": [one for one in results if one.status == CANCELLED],
        "not known: exit code 3": [one for one in results if one.status == UNKNOWN and one.is_failure],
        "do not count (INVALID)": [result for result in results if result.status == SUCCESS and why_invalid(result)],
        "not ended": [result for result in results if result.is_open],
        "one scale alone with their settings": alone if shown else [],
    }
    return [f"left out, {why}: {_named(found)}" for why, found in reasons.items() if found]


def _named(found: Sequence[Result]) -> str:
    names = ", ".join(result.run or result.path for result in found[:_NAMED])
    return names if len(found) <= _NAMED else f"{names} and {len(found) - _NAMED} more"
