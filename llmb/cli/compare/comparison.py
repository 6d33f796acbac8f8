# SPDX-License-Identifier: Apache-2.0
"""Compares two sides and prints the rows in every format."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llmb.cli.compare.side import PUBLISHED, baseline_side, find_side
from llmb.cli.context import Context, say
from llmb.cli.output import print_rows, print_runs
from llmb.cli.results.choose import Choice
from llmb.cli.results.judged import judged
from llmb.errors import RUN_FAILED, UsageError
from llmb.report.digest import LEAST, cut, shortest
from llmb.results import SUCCESS
from llmb.results.distinctions import notes, settings_in_words
from llmb.system import console
from llmb.text.narrow import Level
from llmb.text.tables import Column, to_json
from llmb.verdict import BAD, FAIL, compare, junit
from llmb.verdict.compare import Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be compared, as asked for; None where nothing is said."""

    ours: str | None = None
    theirs: str | None = None
    baseline: str | None = None
    reference: str | None = None
    choice: Choice = field(default_factory=Choice)


def print_comparison(context: Context, wish: Wish, fmt: str) -> int:
    """Print the rows; exit code 3 when a run failed or a verdict is FAIL or INVALID, else 0."""
    against, rows = _compare(context, wish)
    if fmt == "json":
        console.echo(to_json(compare.to_data(rows, against)), nl=False)
    elif fmt == "junit":
        console.echo(junit.to_xml([_case(row) for row in rows]), nl=False)
    else:
        if fmt == "csv":
            print_rows([Column(key=key) for key in _CSV], [_cells(row, fmt) for row in rows], fmt)
        else:
            print_runs(_levels(rows), fmt)
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
    ours = find_side(context, wish.ours, wish.choice)
    if published:
        return PUBLISHED, compare.with_published(judged(context, ours.results, wish.reference))
    if wish.baseline is not None:
        theirs = baseline_side(context, wish.baseline)
    else:
        theirs = find_side(context, wish.theirs, wish.choice)
    return theirs.name, compare.with_measured(ours.results, theirs.results, theirs.name)


_TEXT = (
    Column(key="experiment"),
    Column(key="n", heading="runs", right=True),
    Column(key="step_time_s", heading="step time (s)", show="{:.3f}".format, right=True),
    Column(key="against"),
    Column(key="reference_step_time_s", heading="its step time (s)", show="{:.3f}".format, right=True),
    Column(key="ratio", right=True),
    Column(key="verdict"),
    Column(key="settings"),
    Column(key="reason"),
)
_NAMED = 6  # runs in a line
_SHORT = {"step_time_s": "step (s)", "reference_step_time_s": "its (s)"}
_CSV = (
    "experiment",
    "runs",
    "status",
    "window",
    "step_time_s",
    "against",
    "reference_window",
    "reference_step_time_s",
    "reference_source",
    "ratio",
    "ratio_low",
    "ratio_high",
    "n",
    "verdict",
    "differences",
    "reason",
)


def _levels(rows: Sequence[Comparison]) -> Iterator[Level]:
    """The table with all of it first, then with ever less for narrow terminals."""
    told = _settings(rows)
    cells: list[dict[str, Any]] = [
        {**_cells(row, "table"), "settings": note or None} for row, note in zip(rows, told, strict=True)
    ]
    yield (level := Level([column for column in _TEXT if any(told) or column.key != "settings"], cells))
    short = [replace(column, heading=_SHORT.get(column.key, column.heading)) for column in level.columns]
    yield (level := Level(short, cells))
    cells = [{**row, "reason": "; ".join(filter(None, (row["settings"], row["reason"]))) or None} for row in cells]
    yield (level := Level(level.columns, cells).without("settings"))
    yield (level := level.without("against", said="the name of the other side"))
    yield (level := level.without("n", said="how many runs"))
    yield level.without("reference_step_time_s", said="its step time")


def _settings(rows: Sequence[Comparison]) -> list[str]:
    """What tells rows of one experiment apart, such as their variables."""
    return notes([(row.experiment, settings_in_words(row.configuration, window=row.window)) for row in rows])


def _cells(row: Comparison, fmt: str) -> dict[str, Any]:
    low, high = row.ratio_interval or (None, None)
    star = "*" if row.same_window is False else ""
    reference = row.reference
    reason = "; ".join(text for text in (row.verdict_reason, *row.differences) if text)
    if row.status != SUCCESS:  # a row of its own: which run it is, nothing else says
        reason = ": ".join(filter(None, (" ".join(row.runs), reason)))
    return {
        "experiment": row.experiment,
        "runs": " ".join(row.runs),
        "n": len(row.runs),
        "status": row.status,
        "window": row.window and str(row.window),
        "step_time_s": row.step_time_s,
        "against": reference and reference.release,
        "reference_window": reference and reference.window,
        "reference_step_time_s": reference and reference.step_time_s,
        "reference_source": reference and reference.source,
        "ratio": row.ratio if fmt == "csv" or row.ratio is None else f"{row.ratio:.3f}{star}",
        "ratio_low": low,
        "ratio_high": high,
        "verdict": row.verdict or (None if fmt == "csv" else row.status),
        "differences": "; ".join(row.differences) or None,
        "reason": (row.verdict_reason if fmt == "csv" else reason),
    }


def _said(row: Comparison) -> str:
    """A bad row in a line: ``FAIL: nemotron4_15b_fp8_gpus128 0.942: p1pjso2k``."""
    why = f" {row.ratio:.3f}" if row.ratio is not None else f", {row.verdict_reason}"
    named = " ".join(row.runs[:_NAMED]) + (f" and {len(row.runs) - _NAMED} more" if len(row.runs) > _NAMED else "")
    return f"{row.verdict}: {shortest(row.experiment)}{why}: {named}"


def _case(row: Comparison) -> junit.Case:
    group = row.configuration.workload if row.configuration else "log"
    outcome = junit.outcome_of(row.verdict) if row.verdict else "failure" if compare.is_bad(row) else "skipped"
    message = f"{row.verdict or row.status}: {row.verdict_reason}"
    return junit.Case(group=group, name=f"{row.experiment} [{' '.join(row.runs)}]", outcome=outcome, message=message)


def _legend(rows: Sequence[Comparison], against: str) -> list[str]:
    if not rows:
        return []  # the sides have said so
    count = f"{len(rows)} configuration{'s' if len(rows) > 1 else ''}"
    lines = [f"{count} against {against}: {', '.join(f'{n} {word}' for word, n in compare.summary(rows).items())}"]
    if len(rows) >= LEAST:
        bad = sorted(
            (row for row in rows if row.verdict in BAD), key=lambda row: (row.verdict != FAIL, row.ratio or 0.0)
        )
        lines += cut([_said(row) for row in bad], "more are FAIL or INVALID")
    if any(row.same_window is False for row in rows):
        lines.append("* the two were measured over different windows; --window last measures the last step alone")
    return lines
