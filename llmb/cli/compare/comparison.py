# SPDX-License-Identifier: Apache-2.0
"""Compares two sides, or the scales of one, and prints the rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmb.cli.context import Context, say
from llmb.cli.exit_codes import RUN_FAILED
from llmb.cli.output import print_rows, print_runs
from llmb.cli.results.choose import Choice, choose, gather_of
from llmb.cli.results.judged import exit_code, judged
from llmb.errors import UsageError
from llmb.report.digest import LEAST, cut, shortest
from llmb.results import CANCELLED, FAILED, SUCCESS, UNKNOWN, Result
from llmb.results.result import notes, settings_in_words
from llmb.system import edge, files
from llmb.text.tables import Column, to_json
from llmb.verdict import BAD, FAIL, compare, export, why_invalid
from llmb.verdict.compare import Comparison, measures
from llmb.verdict.export import read_baseline, read_export
from llmb.verdict.scaling import Point, cells, columns, efficiencies, settings

PUBLISHED = "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: its name in messages, and its results (not judged)."""

    name: str
    results: tuple[Result, ...]


def find_side(context: Context, text: str | None, choice: Choice) -> Side:
    """The results that ``text`` means, of all runs where None: a JSON file, an experiment's name, or runs with commas.

    Raises UsageError when it means nothing.
    """
    if text is not None and (path := files.expand(text)).is_file():
        return Side(name=path.name, results=tuple(choose(context, read_export(path), choice)))
    if text is not None and _means_a_file(text):
        hint = "write one: llmb-run results --format json > results.json; or name runs, or an experiment"
        raise UsageError(f"there is no file {text}, and no run is called so", hint=hint)
    runs = context.runs()
    if text is not None:
        named = [run for run in runs if run.job.experiment_name == text]
        runs = named or context.runs(tuple(part.strip() for part in text.split(",") if part.strip()))
    return Side(name=text or "all runs", results=tuple(result for _, result in gather_of(context, runs, choice)))


def _means_a_file(text: str) -> bool:
    """Whether it looks like the name of results in a file and is no folder, which may be a run's."""
    return not files.expand(text).is_dir() and (text.endswith(".json") or "/" in text)


def baseline_side(context: Context, name: str) -> Side:
    """The baseline ``name`` of this install."""
    return Side(name=f"baseline {name}", results=tuple(read_baseline(context.config.llmb_install, name)))


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
        edge.echo(to_json(compare.to_data(rows, against)), nl=False)
    elif fmt == "junit":
        edge.echo(export.to_junit([_case(row) for row in rows]), nl=False)
    else:
        if fmt == "csv":
            print_rows([Column(key=key) for key in _CSV], [_cells(row, fmt) for row in rows], fmt)
        else:
            print_runs(_TEXT, _text_rows(rows), fmt)
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
    Column(key="n", heading="runs", right=True, optional=True),
    Column(key="step_time_s", heading="step (s)", show="{:.3f}".format, right=True),
    Column(key="reference_step_time_s", heading="reference (s)", show="{:.3f}".format, right=True, optional=True),
    Column(key="against", optional=True),
    Column(key="ratio", right=True),
    Column(key="verdict"),
    Column(key="reason"),
)
_NAMED = 6  # runs in a line
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


def _text_rows(rows: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The rows of a table: what tells two of one experiment apart is part of the reason."""
    cells = [(_cells(row, "table"), note) for row, note in zip(rows, _settings(rows), strict=True)]
    return [{**row, "reason": "; ".join(filter(None, (note, row["reason"]))) or None} for row, note in cells]


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


def _case(row: Comparison) -> export.JunitCase:
    group = row.configuration.workload if row.configuration else "log"
    outcome = export.outcome_of(row.verdict) if row.verdict else "failure" if compare.is_bad(row) else "skipped"
    message = f"{row.verdict or row.status}: {row.verdict_reason}"
    return export.JunitCase(
        group=group, name=f"{row.experiment} [{' '.join(row.runs)}]", outcome=outcome, message=message
    )


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


_NAMED_OMITTED = 8  # runs in a line


def print_scaling(context: Context, ours: str | None, choice: Choice, fmt: str) -> int:
    """Print the scaling efficiency of each model among the runs ``ours``; exit code 3 when one failed, else 0."""
    if fmt == "junit":
        raise UsageError("--scaling has no verdict for JUnit", hint="--format table, json, csv or md")
    results = find_side(context, ours, choice).results
    points = efficiencies(results)
    print_runs(columns(points, fmt), [cells(point) for point in points], fmt, name="workload", below="settings")
    if results and not points:
        say("no model was measured at two scales or more with the same settings")
    for line in left_out(results, points):
        say(line)
    return exit_code(results)


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
    return [f"left out, {why}: {_run_names(found)}" for why, found in reasons.items() if found]


def _run_names(found: Sequence[Result]) -> str:
    names = ", ".join(result.run or result.path for result in found[:_NAMED_OMITTED])
    return names if len(found) <= _NAMED_OMITTED else f"{names} and {len(found) - _NAMED_OMITTED} more"
