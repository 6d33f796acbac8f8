# SPDX-License-Identifier: Apache-2.0
"""Compares two sides and prints the rows in every format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from llmb import compare
from llmb.cli.context import Context, say
from llmb.cli.following import RUN_FAILED
from llmb.cli.output import name_width, print_rows
from llmb.cli.reporting import judged
from llmb.cli.sides import PUBLISHED, baseline_side, find_side
from llmb.compare import Comparison
from llmb.errors import UsageError
from llmb.measure import Window
from llmb.results import junit
from llmb.tables import Column, shorten, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be compared, as asked for; None where nothing is said."""

    ours: str | None = None
    theirs: str | None = None
    baseline: str | None = None
    reference: str | None = None
    window: Window | None = None


def print_comparison(context: Context, wish: Wish, fmt: str) -> int:
    """Print the rows; exit code 3 when a run failed or a verdict is FAIL or INVALID, else 0."""
    against, rows = _compare(context, wish)
    if fmt == "json":
        click.echo(to_json(compare.to_data(rows, against)), nl=False)
    elif fmt == "junit":
        click.echo(junit.to_xml([_case(row) for row in rows]), nl=False)
    else:
        print_rows(_columns(fmt), [_cells(row, fmt) for row in rows], fmt)
        for line in _legend(rows, against) if fmt == "table" else []:
            say(line)
    return RUN_FAILED if any(compare.is_bad(row) for row in rows) else 0


def _compare(context: Context, wish: Wish) -> tuple[str, list[Comparison]]:
    """The name of the other side, and the rows."""
    given = [text for text in (wish.theirs, wish.baseline and f"--baseline {wish.baseline}") if text]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)}: compare with one of them", hint="leave one away")
    published = wish.baseline is None and wish.theirs in (None, PUBLISHED)
    if wish.reference is not None and not published:
        raise UsageError("--reference names a release of published figures", hint="leave B and --baseline away")
    if wish.ours == PUBLISHED:
        raise UsageError(f"'{PUBLISHED}' can only be what is compared with", hint="llmb-run compare A published")
    ours = find_side(context, wish.ours, wish.window)
    if published:
        return PUBLISHED, compare.with_published(judged(context, ours.results, wish.reference))
    if wish.baseline is not None:
        theirs = baseline_side(context, wish.baseline)
    else:
        theirs = find_side(context, wish.theirs, wish.window)
    return theirs.name, compare.with_measured(ours.results, theirs.results, theirs.name)


_TEXT = (
    Column(key="experiment"),
    Column(key="n", heading="runs", right=True),
    Column(key="step_time_s", heading="step time (s)", show="{:.3f}".format, right=True),
    Column(key="against"),
    Column(key="reference_step_time_s", heading="its step time (s)", show="{:.3f}".format, right=True),
    Column(key="ratio", right=True),
    Column(key="verdict"),
    Column(key="reason"),
)


def _columns(fmt: str) -> list[Column]:
    if fmt != "csv":
        return list(_TEXT)
    names = ("experiment", "runs", "status", "window", "step_time_s", "against", "reference_window",
             "reference_step_time_s", "reference_source", "ratio", "ratio_low", "ratio_high", "n", "verdict",
             "differences", "reason")  # fmt: skip
    return [Column(key=name) for name in names]


def _cells(row: Comparison, fmt: str) -> dict[str, Any]:
    low, high = row.ratio_interval or (None, None)
    star = "*" if row.same_window is False else ""
    reference = row.reference
    reason = "; ".join(text for text in (row.verdict_reason, *row.differences) if text)
    return {
        "experiment": row.experiment if fmt == "csv" else shorten(row.experiment, name_width(fmt)),
        "runs": " ".join(row.runs), "n": len(row.runs), "status": row.status, "window": row.window and str(row.window),
        "step_time_s": row.step_time_s,
        "against": reference and reference.release, "reference_window": reference and reference.window,
        "reference_step_time_s": reference and reference.step_time_s,
        "reference_source": reference and reference.source,
        "ratio": row.ratio if fmt == "csv" or row.ratio is None else f"{row.ratio:.3f}{star}",
        "ratio_low": low, "ratio_high": high, "verdict": row.verdict or (None if fmt == "csv" else row.status),
        "differences": "; ".join(row.differences) or None, "reason": (row.verdict_reason if fmt == "csv" else reason),
    }  # fmt: skip


def _case(row: Comparison) -> junit.Case:
    group = row.configuration.workload if row.configuration else "log"
    outcome = junit.outcome_of(row.verdict) if row.verdict else "failure" if compare.is_bad(row) else "skipped"
    message = f"{row.verdict or row.status}: {row.verdict_reason}"
    return junit.Case(
        group=group, name=f"{row.experiment} [{' '.join(row.runs)}]", outcome=outcome, message=message
    )  # fmt: skip


def _legend(rows: Sequence[Comparison], against: str) -> list[str]:
    if not rows:
        return ["no run to compare"]
    count = f"{len(rows)} configuration{'s' if len(rows) > 1 else ''}"
    lines = [f"{count} against {against}: {', '.join(f'{n} {word}' for word, n in compare.summary(rows).items())}"]
    if any(row.same_window is False for row in rows):
        lines.append("* the two were measured over different windows; --window last measures the last step alone")
    return lines
