# SPDX-License-Identifier: Apache-2.0
"""`llmb-run compare`: runs against published figures, other runs, or an accepted baseline."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import click

from llmb.cli import options
from llmb.cli.choice import Choice, choice_options, choose, choose_runs, gather, sessions_of
from llmb.cli.context import CliContext, pass_context, say, select_runs
from llmb.cli.judging import judged
from llmb.cli.output import print_rows, print_runs
from llmb.cli.results import exit_code
from llmb.contract.record import RunRecord
from llmb.core import console, files
from llmb.core.names import listed
from llmb.core.tables import to_json
from llmb.core.values import dataclass
from llmb.errors import RUN_FAILED, LlmbError, UsageError
from llmb.judge import compare, export
from llmb.judge.compare import Comparison, measures
from llmb.judge.export import Baseline
from llmb.judge.judge import why_invalid
from llmb.judge.scaling import ScalingPoint, columns, rows_of, scaling_points, settings
from llmb.judge.value import BAD, FAIL, ratio_in_digits
from llmb.measure.result import CANCELLED, FAILED, SUCCESS, UNKNOWN, Result
from llmb.plan.locate import is_archive
from llmb.run import sessions
from llmb.show import comparison_table
from llmb.show.archive.contents import MANIFEST
from llmb.show.report.digest import LEAST, cut, with_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison."""

    name: str
    results: tuple[Result, ...]  # not judged
    all_runs: Sequence[RunRecord] = ()  # of the install directory that was read, if any


def _measured(context: CliContext, runs: Sequence[RunRecord], choice: Choice) -> tuple[Result, ...]:
    return tuple(result for *_, result in gather(context, runs, choice))


def find_side(context: CliContext, text: str | None, choice: Choice) -> Side:
    """Read an archive, a file, a session, an experiment, runs with commas, or a baseline.

    None is the chosen sessions, by default the newest.

    Raises UsageError when there are none.
    """
    if text is not None and is_archive(text):
        context = context.of_archive(files.expand(text))
        runs = choose_runs(context.runs(), (), choice)
        return Side(name=text, results=_measured(context, runs, choice))
    path = None if text is None else files.expand(text)
    if path is not None and path.is_file():
        try:
            return Side(
                name=path.name, results=tuple(choose(context, export.read_export(path), choice))
            )
        except LlmbError as error:
            if error.code == "file-damaged":  # the user's own file
                error.hint = "write it again: llmb-run results --format json > results.json"
            raise
    if text is not None and (text.endswith(".json") or "/" in text) and path and not path.is_dir():
        raise UsageError(
            f"{text} is neither a file nor a run",
            hint=(
                "name runs, an experiment, or a file of"
                " llmb-run results --format json > results.json"
            ),
            code="side-unknown",
            value=text,
        )
    all_runs = context.runs()
    groups = sessions.group(all_runs)
    session = None if text is None else sessions.find(text, groups)
    if text is None:
        runs = choose_runs(all_runs, (), choice)
        shown = sessions_of(runs)
        name = f"session {sessions.in_words(shown[0])}" if len(shown) == 1 else "all runs"
    elif session is not None:
        runs, name = list(session.runs), f"session {sessions.in_words(session.session)}"
    else:
        runs = [run for run in all_runs if run.job.experiment_name == text]
        runs = choose_runs(runs, (), choice, by_default=(sessions.ALL,)) if runs else []
        name = text
    if text is not None and not runs:
        install = context.config.llmb_install
        names = tuple(part.strip() for part in text.split(",") if part.strip())
        try:
            runs = select_runs(all_runs, names)
        except UsageError:
            if text not in export.baselines(install):
                if sessions.is_id(text):
                    raise sessions.unknown(text, groups) from None
                raise
            baseline = export.read_baseline(install, text)
            chosen = choose(context, baseline.results, choice)
            return Side(name=baseline.called, results=tuple(chosen))
    return Side(name=name, results=_measured(context, runs, choice), all_runs=all_runs)


def earlier_session(context: CliContext, request: Request) -> Side | None:
    """The newest earlier session with configurations of the one that is shown, or None.

    None also if several sessions are shown, or one in an archive.
    """
    runs = context.runs()
    selection = sessions.select(runs, request.choice.sessions, request.choice.earliest)
    if len(selection.shown) != 1:
        return None
    before = sessions.before(sessions.group(runs), selection.shown[0], _configuration)
    if before is None:
        return None
    choice = replace(request.choice, sessions=(), earliest=None)
    name = f"session {sessions.in_words(before.session)}"
    return Side(name=name, results=_measured(context, before.runs, choice), all_runs=runs)


def _configuration(run: RunRecord) -> Hashable:
    """The settings that two nights share although an image or a setting has changed in between."""
    job = run.job
    return job.workload, job.model_size, job.dtype, job.gpu_type, job.scale


def find_baseline(
    context: CliContext, name: str, choice: Choice, compared: str | None = None
) -> Baseline:
    """The baseline of this name, or the newest runs of each configuration in an archive.

    Raises UsageError without it.

    If ``compared`` is an archive, its baseline of that name comes before the install directory's.
    """
    if not is_archive(name):
        if compared is not None and is_archive(compared):
            archived = context.of_archive(files.expand(compared)).config.llmb_install
            if name in export.baselines(archived):
                return export.read_baseline(archived, name)
        return export.read_baseline(context.config.llmb_install, name)
    archive = context.of_archive(files.expand(name))
    # What the choice names is chosen from the other side.
    choice = replace(choice, workloads=(), nodes=(), sessions=(), earliest=None)
    results = _measured(archive, sessions.newest_of_each(archive.runs()), choice)
    manifest = files.read_json(archive.config.llmb_install / MANIFEST)
    return Baseline(
        called=files.expand(name).name,
        accepted=manifest.get("created") if isinstance(manifest, dict) else None,
        results=results,
    )


def baseline_instead(
    context: CliContext, name: str | None, reference: str | None, choice: Choice
) -> Baseline | None:
    """The baseline ``name`` in place of the published figures, or None without a name.

    Raises UsageError.
    """
    if name is None:
        return None
    refuse_reference(reference)
    return find_baseline(context, name, choice)


def refuse_reference(reference: str | None) -> None:
    """Raise UsageError for ``--reference`` without published figures to compare with."""
    if reference is not None:
        raise UsageError(
            "--reference needs published figures to compare with",
            hint="omit B and --baseline",
            code="options-conflict",
            key="--reference",
        )


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
def command(context: CliContext, /, scaling: bool, fmt: str, **request: Any) -> int:
    """Compare A with B (default: the newest session with the one before it).

    A and B are sessions by id or name, baselines, archives, files written by `results --format
    json`, the name of an experiment, or runs separated by commas. B may be `published`, which is
    the default if A is named or no earlier session has its configurations. Runs of A are no part
    of B. Without B, the runs of
    `submit --ab` are compared with each other. Runs that differ in size, dtype, GPU type, scale,
    parameters of the workload, global batch or sequence length are not compared. The reason names
    the difference.
    """
    return (print_scaling if scaling else print_comparison)(context, Request(**request), fmt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The sides and options of ``compare``, or None for what the command line does not name."""

    ours: str | None
    theirs: str | None
    baseline: str | None
    reference: str | None
    choice: Choice


def print_comparison(context: CliContext, request: Request, fmt: str) -> int:
    """Print the rows.

    The exit code is 3 when a run failed or a verdict is FAIL or INVALID, else 1 when a log is not
    read.
    """
    against, rows, results = _compare(context, request)
    if fmt == "json":
        console.echo(to_json(compare.to_data(rows, against)), nl=False)
    elif fmt == "junit":
        console.echo(export.to_junit([_case(row) for row in rows]), nl=False)
    else:
        if fmt == "csv":
            print_rows(comparison_table.csv_columns(), comparison_table.csv_rows(rows), fmt)
        else:
            print_runs(comparison_table.columns(rows), comparison_table.rows_of(rows), fmt)
        legend = [*_legend(rows, against), *_warn_of_other_nodes(context, request, rows)]
        for line in legend if fmt == "table" else []:
            say(line)
    if any(map(compare.is_bad, rows)):
        return RUN_FAILED
    return (
        LlmbError.exit_code
        if any(result.unreadable and not result.is_failure for result in results)
        else 0
    )


def _compare(
    context: CliContext, request: Request
) -> tuple[str, list[Comparison], tuple[Result, ...]]:
    """The name of the other side, the rows, and the results of both sides."""
    sides = [
        text
        for text in (request.theirs, request.baseline and f"--baseline {request.baseline}")
        if text
    ]
    if len(sides) > 1:
        raise UsageError(
            f"{' and '.join(sides)} cannot be combined",
            hint="omit one of them",
            code="options-conflict",
            key="B",
        )
    published = request.baseline is None and request.theirs in (None, PUBLISHED)
    if not published:
        refuse_reference(request.reference)
    if request.ours == PUBLISHED:
        raise UsageError(
            f"A cannot be '{PUBLISHED}'",
            hint="llmb-run compare A published",
            code="side-published",
            key="A",
            value=PUBLISHED,
        )
    ours = find_side(context, request.ours, request.choice)
    if published and (request.theirs, request.reference) == (None, None):
        in_pairs = compare.with_pairs(ours.results)
        if in_pairs is not None:
            return *in_pairs, ours.results
    if published and (request.ours, request.theirs, request.reference) == (None, None, None):
        earlier = earlier_session(context, request)
        if earlier is not None:
            return _against(ours.results, earlier.results, earlier.name)
        if len(sessions.group(ours.all_runs)) > 1:
            say("note: no earlier session has these configurations: compared with published")
    if published:
        return (
            PUBLISHED,
            compare.with_published(
                judged(context, ours.results, request.reference, runs=ours.all_runs)
            ),
            ours.results,
        )
    if request.baseline is not None:
        base = find_baseline(context, request.baseline, request.choice, request.ours)
        chosen: Sequence[Result] = ours.results
        if request.ours is None or is_archive(request.ours):
            chosen = compare.without_accepted(chosen, base.results, base.called)
        return _against(chosen, base.results, base.called)
    side = find_side(context, request.theirs, request.choice)
    reference_results = compare.without_runs_of(ours.results, side.results)
    if not reference_results:
        say(f"warning: {side.name} has no other runs than A: they are compared with themselves")
    return _against(ours.results, reference_results or side.results, side.name)


def _against(
    results: Sequence[Result], reference_results: Sequence[Result], name: str
) -> tuple[str, list[Comparison], tuple[Result, ...]]:
    """As ``_compare``, against the results of the other side called ``name``."""
    rows = compare.with_measured(results, reference_results, name)
    return name, rows, (*results, *reference_results)


_NAMED = 6  # runs in a line


def _bad_row(row: Comparison) -> str:
    """A bad row as a line: ``FAIL: nemotron4_15b_fp8_gpus128 0.942: p1pjso2k``."""
    detail = (
        f", {row.verdict_reason}"
        if row.ratio is None or row.faults
        else f" {ratio_in_digits(row.ratio, row.bounds)}"
    )
    return (
        f"{row.verdict}: {with_parameters(row.experiment, row.configuration)}{detail}:"
        f" {listed(row.runs, _NAMED, ' ')}"
    )


def _case(row: Comparison) -> export.JunitCase:
    group = row.configuration.workload if row.configuration else "log"
    outcome = (
        export.outcome_of(row.verdict)
        if row.verdict
        else "failure"
        if compare.is_bad(row)
        else "skipped"
    )
    return export.JunitCase(
        group=group,
        name=f"{row.experiment} [{' '.join(row.runs)}]",
        outcome=outcome,
        message=f"{row.verdict or row.status}: {row.verdict_reason}",
    )


def _legend(rows: Sequence[Comparison], against: str) -> list[str]:
    if not rows:
        return []
    lines = [
        f"{_count_of(rows)} against {against}:"
        f" {', '.join(f'{n} {word}' for word, n in compare.summary(rows).items())}"
    ]
    if len(rows) >= LEAST:
        bad_rows = [row for row in rows if row.verdict in BAD]
        bad_rows.sort(key=lambda row: (row.verdict != FAIL, row.ratio or 0.0))
        lines += cut([_bad_row(row) for row in bad_rows], "more are FAIL or INVALID")
    lines += _note_of_loss(rows)
    if any(row.same_window is False for row in rows):
        advice = (
            "--window last measures only the last step"
            if against == PUBLISHED
            else "equal numbers of steps have equal windows"
        )
        lines.append(f"* the windows of the two differ; {advice}")
    return lines


def _count_of(rows: Sequence[Comparison]) -> str:
    """Return ``9 configurations``, or ``12 rows of 9 configurations``.

    Runs without a value have rows of their own, and so has each session.
    """
    keys = {row.configuration.key if row.configuration else row.experiment for row in rows}
    count = f"{len(keys)} configuration{'s' if len(keys) > 1 else ''}"
    return count if len(rows) == len(keys) else f"{len(rows)} rows of {count}"


def _note_of_loss(rows: Sequence[Comparison]) -> list[str]:
    """Return one note on the trainings whose loss was not compared."""
    reasons = [row.loss_not_compared for row in rows if row.loss_not_compared is not None]
    if not reasons:
        return []
    count = f"{len(reasons)} of {len(rows)} configurations" if len(rows) > 1 else "it"
    further = ", ..." if len(set(reasons)) > 1 else ""
    return [f"note: the loss of {count} was not compared: {reasons[0]}{further}"]


def _warn_of_other_nodes(
    context: CliContext, request: Request, rows: Sequence[Comparison]
) -> list[str]:
    """Return a warning about rows whose sides ran on different nodes, and how to repeat them."""
    moved = [row for row in rows if row.is_on_other_nodes]
    if not moved:
        return []
    compared = sum(row.reference is not None for row in rows)
    line = (
        f"warning: {len(moved)} of {compared} ran on other nodes than the reference, which may"
        " explain a difference"
    )
    if not _can_repeat(context, request):
        return [line]
    again = "Submit again on the nodes of the reference:"
    lists = list(dict.fromkeys(row.reference_nodelist for row in moved))
    if len(lists) == 1:
        return [f"{line}. {again} --nodelist {lists[0]}"]
    named = [
        f"{with_parameters(row.experiment, row.configuration)}: --nodelist {row.reference_nodelist}"
        for row in moved
    ]
    return [f"{line}. {again}", *cut(named, "more ran on other nodes")]


def _can_repeat(context: CliContext, request: Request) -> bool:
    """Return True if both sides are of this installation, on a cluster where nodes are chosen."""
    names = (request.ours, request.theirs, request.baseline)
    is_elsewhere = any(
        name is not None and (is_archive(name) or files.expand(name).is_file()) for name in names
    )
    return not is_elsewhere and context.config.traits.sbatch_options


def print_scaling(context: CliContext, request: Request, fmt: str) -> int:
    """Print the scaling of each configuration among the runs of A; exit code 3 when one failed."""
    if request.theirs or request.baseline or request.reference:
        raise UsageError(
            "--scaling takes only A",
            hint="omit B, --baseline and --reference",
            code="options-conflict",
            key="--scaling",
        )
    if fmt == "junit":
        raise UsageError(
            "--scaling has no verdicts for JUnit",
            hint="--format table, json, csv or md",
            code="format-invalid",
            key="--format",
        )
    results = find_side(context, request.ours, request.choice).results
    points = scaling_points(results)
    print_runs(columns(points, fmt), rows_of(points, fmt), fmt, name="workload", below="settings")
    if results and not points:
        say("no configuration has runs at two scales or more with the same settings")
    for line in omitted(results, points):
        say(line)
    return exit_code(results)


def omitted(results: Iterable[Result], points: Iterable[ScalingPoint] = ()) -> list[str]:
    """A line for each reason why runs have no point, with its effect on the exit code."""
    shown = {point.series.settings for point in points}

    def is_alone(result: Result) -> bool:
        has_settings = measures(result) and result.identity.configuration is not None
        return bool(shown) and has_settings and not shown & settings(result)

    tests: dict[str, Callable[[Result], object]] = {
        "failed: exit code 3": lambda result: result.status == FAILED,
        "cancelled: exit code 3": lambda result: result.status == CANCELLED,
        "unknown: exit code 3": lambda result: result.status == UNKNOWN and result.is_failure,
        "not read: exit code 1": lambda result: result.unreadable and not result.is_failure,
        "invalid": lambda result: result.status == SUCCESS and why_invalid(result),
        "not ended": lambda result: result.is_open,
        "only one scale with the same settings": is_alone,
    }
    results = list(results)
    groups = {
        reason: [result.identity.name for result in results if test(result)]
        for reason, test in tests.items()
    }
    return [f"omitted, {reason}: {listed(names)}" for reason, names in groups.items() if names]
