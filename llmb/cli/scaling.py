# SPDX-License-Identifier: Apache-2.0
"""Prints how the throughput of each model grows with the scale."""

from __future__ import annotations

from collections.abc import Iterable

from llmb.cli.context import Context, say
from llmb.cli.output import print_rows
from llmb.cli.reporting import exit_code
from llmb.cli.sides import find_side
from llmb.errors import UsageError
from llmb.measure import Window
from llmb.results import FAILED, RUNNING, SUCCESS, Result
from llmb.scaling import COLUMNS, cells, efficiencies
from llmb.verdict import why_invalid


def print_scaling(context: Context, ours: str | None, window: Window | None, fmt: str) -> int:
    """Print the scaling efficiency of each model among the runs ``ours``; exit code 3 when one failed, else 0."""
    if fmt == "junit":
        raise UsageError("--scaling has no verdict for JUnit", hint="--format table, json, csv or md")
    results = find_side(context, ours, window).results
    points = efficiencies(results)
    print_rows(COLUMNS, [cells(point) for point in points], fmt)
    if not points:
        say("no model was measured at two scales or more")
    for line in left_out(results):
        say(line)
    return exit_code(results)


def left_out(results: Iterable[Result]) -> list[str]:
    """A line for each reason why runs are not among the points, and what that means for the exit code."""
    reasons = {
        "failed: exit code 3": [result for result in results if result.status == FAILED],
        "do not count (INVALID)": [result for result in results if result.status == SUCCESS and why_invalid(result)],
        "not ended": [result for result in results if result.status == RUNNING],
    }
    return [
        f"left out, {why}: {', '.join(result.run or result.path for result in found)}"
        for why, found in reasons.items()
        if found
    ]
