# SPDX-License-Identifier: Apache-2.0
"""`llmb-run compare`: runs against published figures, other runs, another cluster, or an accepted baseline."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from llmb.archive.contents import MANIFEST
from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.cli.output import print_rows, print_runs
from llmb.cli.results import Choice, choice_options, choose, exit_code, gather, judged
from llmb.config.locate import is_archive
from llmb.errors import RUN_FAILED, LlmbError, UsageError
from llmb.report.markdown import LEAST, cut, with_parameters
from llmb.results.result import CANCELLED, FAILED, SUCCESS, UNKNOWN, Result
from llmb.system import console, files
from llmb.text.names import listed
from llmb.text.tables import to_json
from llmb.verdict import compare, export, table
from llmb.verdict.compare import Comparison, measures
from llmb.verdict.export import Baseline
from llmb.verdict.judge import BAD, FAIL, why_invalid
from llmb.verdict.scaling import Point, columns, rows_of, scaling_points, settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: its name, and its results (not judged)."""

    name: str
    results: tuple[Result, ...]


def find_side(context: Context, text: str | None, choice: Choice) -> Side:
    """The results of a JSON file, an experiment, or runs separated by commas; of all runs where ``text`` is None.

    Raises UsageError when there are none.
    """
    if text is not None and is_archive(text):
        context = context.of_archive(files.expand(text))
        return Side(name=text, results=tuple(result for _, result in gather(context, context.runs(), choice)))
    path = None if text is None else files.expand(text)
    if path is not None and path.is_file():
        try:
            return Side(name=path.name, results=tuple(choose(context, export.read_export(path), choice)))
        except LlmbError as error:
            if error.code == "file-damaged":  # the user's own file
                error.hint = "write it again: llmb-run results --format json > results.json"
            raise
    if text is not None and (text.endswith(".json") or "/" in text) and path and not path.is_dir():
        hint = "name runs, an experiment, or a file of llmb-run results --format json > results.json"
        raise UsageError(f"{text} is neither a file nor a run", hint=hint, code="side-unknown", value=text)
    runs = context.runs()
    if text is not None:
        named = [run for run in runs if run.job.experiment_name == text]
        runs = named or context.runs(tuple(part.strip() for part in text.split(",") if part.strip()))
    return Side(name=text or "all runs", results=tuple(result for _, result in gather(context, runs, choice)))


def find_baseline(context: Context, name: str, choice: Choice, ours: str | None = None) -> Baseline:
    """The baseline of this name; of an archive, the chosen runs in it. Raises UsageError where there is none.

    ``ours``: what is compared with it; an archive may have the baseline, which is else one of the install directory.
    """
    if not is_archive(name):
        if ours is not None and is_archive(ours):
            archived = context.of_archive(files.expand(ours)).config.llmb_install
            if name in export.baselines(archived):
                return export.read_baseline(archived, name)
        return export.read_baseline(context.config.llmb_install, name)
    own = context.of_archive(files.expand(name))
    results = gather(own, own.runs(), replace(choice, workloads=(), nodes=()))
    written = files.read_json(own.config.llmb_install / MANIFEST)
    return Baseline(
        called=files.expand(name).name,
        accepted=written.get("created") if isinstance(written, dict) else None,
        results=tuple(result for _, result in results),
    )


def baseline_instead(context: Context, name: str | None, reference: str | None, choice: Choice) -> Baseline | None:
    """The baseline ``name`` in place of the published figures, None without a name. Raises UsageError."""
    if name is None:
        return None
    refuse_reference(reference)
    return find_baseline(context, name, choice)


def refuse_reference(reference: str | None) -> None:
    """Raise UsageError for a release with ``--reference`` where nothing is compared with published figures."""
    if reference is not None:
        message, hint = "--reference needs published figures to compare with", "omit B and --baseline"
        raise UsageError(message, hint=hint, code="options-conflict", key="--reference")


PUBLISHED = "published"


@click.command("compare")
@click.argument("ours", metavar="[A]", required=False)
@click.argument("theirs", metavar="[B]", required=False)
@options.baseline_option
@options.reference_option
@choice_options
@click.option("--scaling", is_flag=True, help="Compare the scales of A with its smallest scale.")
@options.format_or_junit_option
@options.read_option
@pass_context
def command(context: Context, /, scaling: bool, fmt: str, **asked: Any) -> int:
    """Compare A (default: all runs) with B (default: published).

    A and B are runs separated by commas, the name of an experiment, an archive, or a file written by
    `results --format json`.
    Runs that differ in size, dtype, GPU type, scale, parameters of the workload, global batch or sequence length are
    not compared; the reason names the difference.
    """
    return (print_scaling if scaling else print_comparison)(context, Request(**asked), fmt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of ``compare``: what it compares; None where the command line says nothing."""

    ours: str | None
    theirs: str | None
    baseline: str | None
    reference: str | None
    choice: Choice


def print_comparison(context: Context, request: Request, fmt: str) -> int:
    """Print the rows; exit code 3 when a run failed or a verdict is FAIL or INVALID, else 1 when a log is not read."""
    against, rows, results = _compare(context, request)
    if fmt == "json":
        console.echo(to_json(compare.to_data(rows, against)), nl=False)
    elif fmt == "junit":
        console.echo(export.to_junit([_case(row) for row in rows]), nl=False)
    else:
        if fmt == "csv":
            print_rows(table.csv_columns(), table.csv_rows(rows), fmt)
        else:
            print_runs(table.columns(rows), table.rows_of(rows), fmt)
        for line in _legend(rows, against) if fmt == "table" else []:
            say(line)
    if any(map(compare.is_bad, rows)):
        return RUN_FAILED
    return LlmbError.exit_code if any(one.unreadable and not one.is_failure for one in results) else 0


def _compare(context: Context, request: Request) -> tuple[str, list[Comparison], tuple[Result, ...]]:
    """The name of the other side, the rows, and the results of both sides."""
    given = [text for text in (request.theirs, request.baseline and f"--baseline {request.baseline}") if text]
    if len(given) > 1:
        message = f"{' and '.join(given)} cannot be combined"
        raise UsageError(message, hint="omit one of them", code="options-conflict", key="B")
    published = request.baseline is None and request.theirs in (None, PUBLISHED)
    if not published:
        refuse_reference(request.reference)
    if request.ours == PUBLISHED:
        hint = "llmb-run compare A published"
        raise UsageError(f"A cannot be '{PUBLISHED}'", hint=hint, code="side-published", key="A", value=PUBLISHED)
    ours = find_side(context, request.ours, request.choice)
    if published:
        return PUBLISHED, compare.with_published(judged(context, ours.results, request.reference)), ours.results
    if request.baseline is not None:
        base = find_baseline(context, request.baseline, request.choice, request.ours)
        is_all = request.ours is None or is_archive(request.ours)
        chosen = compare.without(ours.results, base.results) if is_all else ours.results
        return base.called, compare.with_measured(chosen, base.results, base.called), (*chosen, *base.results)
    theirs = find_side(context, request.theirs, request.choice)
    rows = compare.with_measured(ours.results, theirs.results, theirs.name)
    return theirs.name, rows, (*ours.results, *theirs.results)


_NAMED = 6  # runs in a line


def _bad_row(row: Comparison) -> str:
    """A bad row as a line: ``FAIL: nemotron4_15b_fp8_gpus128 0.942: p1pjso2k``."""
    why = f" {row.ratio:.3f}" if row.ratio is not None else f", {row.verdict_reason}"
    return f"{row.verdict}: {with_parameters(row.experiment, row.configuration)}{why}: {listed(row.runs, _NAMED, ' ')}"


def _case(row: Comparison) -> export.JunitCase:
    group = row.configuration.workload if row.configuration else "log"
    outcome = export.outcome_of(row.verdict) if row.verdict else "failure" if compare.is_bad(row) else "skipped"
    message = f"{row.verdict or row.status}: {row.verdict_reason}"
    return export.JunitCase(
        group=group, name=f"{row.experiment} [{' '.join(row.runs)}]", outcome=outcome, message=message
    )


def _legend(rows: Sequence[Comparison], against: str) -> list[str]:
    if not rows:
        return []
    count = f"{len(rows)} configuration{'s' if len(rows) > 1 else ''}"
    lines = [f"{count} against {against}: {', '.join(f'{n} {word}' for word, n in compare.summary(rows).items())}"]
    if len(rows) >= LEAST:
        bad = [row for row in rows if row.verdict in BAD]
        bad.sort(key=lambda row: (row.verdict != FAIL, row.ratio or 0.0))
        lines += cut([_bad_row(row) for row in bad], "more are FAIL or INVALID")
    if any(row.same_window is False for row in rows):
        lines.append("* the windows of the two differ; --window last measures only the last step")
    return lines


def print_scaling(context: Context, request: Request, fmt: str) -> int:
    """Print the scaling of each configuration among the runs of A; exit code 3 when one failed, else 0."""
    if request.theirs or request.baseline or request.reference:
        hint = "omit B, --baseline and --reference"
        raise UsageError("--scaling takes only A", hint=hint, code="options-conflict", key="--scaling")
    if fmt == "junit":
        hint = "--format table, json, csv or md"
        raise UsageError("--scaling has no verdicts for JUnit", hint=hint, code="format-invalid", key="--format")
    results = find_side(context, request.ours, request.choice).results
    points = scaling_points(results)
    print_runs(columns(points, fmt), rows_of(points, fmt), fmt, name="workload", below="settings")
    if results and not points:
        say("no configuration has runs at two scales or more with the same settings")
    for line in omitted(results, points):
        say(line)
    return exit_code(results)


def omitted(results: Iterable[Result], points: Iterable[Point] = ()) -> list[str]:
    """A line for each reason why runs have no point, with its effect on the exit code."""
    results = list(results)
    shown = {point.series.settings for point in points}
    measured = [one for one in results if measures(one) and one.identity.configuration is not None]
    alone = [one for one in measured if not shown & settings(one)]
    reasons = {
        "failed: exit code 3": [one for one in results if one.status == FAILED],
        "cancelled: exit code 3": [one for one in results if one.status == CANCELLED],
        "unknown: exit code 3": [one for one in results if one.status == UNKNOWN and one.is_failure],
        "not read: exit code 1": [one for one in results if one.unreadable and not one.is_failure],
        "invalid": [result for result in results if result.status == SUCCESS and why_invalid(result)],
        "not ended": [result for result in results if result.is_open],
        "only one scale with the same settings": alone if shown else [],
    }
    named = {why: [result.identity.name for result in found] for why, found in reasons.items() if found}
    return [f"omitted, {why}: {listed(names)}" for why, names in named.items()]
