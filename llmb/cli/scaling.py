# SPDX-License-Identifier: Apache-2.0
"""Prints how the throughput of each model grows with the scale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llmb.cli.context import Context, say
from llmb.cli.output import print_rows
from llmb.cli.reporting import exit_code
from llmb.cli.sides import find_side
from llmb.compare import invalid
from llmb.errors import UsageError
from llmb.measure import Window
from llmb.results import FAILED, RUNNING, SUCCESS, Result
from llmb.scaling import Point, efficiencies
from llmb.tables import Column

COLUMNS = [
    Column(key="workload"),
    Column(key="size"),
    Column(key="dtype"),
    Column(key="gpu_type", heading="GPU"),
    Column(key="scaling"),
    Column(key="scale", heading="GPUs", right=True),
    Column(key="gbs", heading="batch", right=True),
    Column(key="n", heading="runs", right=True),
    Column(key="step_time_s", heading="step time (s)", show="{:.3f}".format, right=True),
    Column(key="tokens_per_second_per_gpu", heading="tokens/s/GPU", show="{:.1f}".format, right=True),
    Column(key="efficiency", heading="efficiency %", show=lambda value: f"{100 * value:.1f}", right=True),
]


def cells(point: Point) -> dict[str, Any]:
    """One point of a model's scaling as a row of COLUMNS."""
    own = point.configuration
    return {
        "workload": own.workload, "size": own.model_size, "dtype": own.dtype, "gpu_type": own.gpu_type,
        "scaling": point.kind, "scale": own.scale, "gbs": own.gbs, "n": point.n, "step_time_s": point.step_time_s,
        "tokens_per_second_per_gpu": point.tokens_per_second_per_gpu, "efficiency": point.efficiency,
    }  # fmt: skip


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
        "do not count (INVALID)": [result for result in results if result.status == SUCCESS and invalid(result)],
        "not ended": [result for result in results if result.status == RUNNING],
    }
    return [
        f"left out, {why}: {', '.join(result.run or result.path for result in found)}"
        for why, found in reasons.items()
        if found
    ]
