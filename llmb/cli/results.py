# SPDX-License-Identifier: Apache-2.0
"""`llmb-run results`: what runs measured; how every command chooses runs, judges and prints their results."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from llmb.cli import options
from llmb.cli.context import Context, completed, pass_context, say
from llmb.cli.output import print_rows, print_runs
from llmb.cli.reading import kept_results, opened, peaks_of, result_of
from llmb.clusters.base import HINT_ELSEWHERE
from llmb.errors import RUN_FAILED, LlmbError, UsageError
from llmb.report.markdown import digest
from llmb.results import columns, table
from llmb.results.result import CANCELLED, UNKNOWN, Identity, Result
from llmb.runs.record import RunRecord
from llmb.runs.state import JobState
from llmb.runs.store import nodes_of
from llmb.stats.measure import Window, parse_window
from llmb.submission.follow import last_seen, look
from llmb.system import console
from llmb.text.names import find_workload_and_size
from llmb.text.node_lists import expand, is_list, short_name
from llmb.text.tables import escape, to_json
from llmb.verdict import export
from llmb.verdict.compare import judged_against
from llmb.verdict.export import Baseline
from llmb.verdict.judge import BAD, judge
from llmb.verdict.suspects import EXPLAINED, with_causes
from llmb.workload.published import check_release


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which runs are selected: of ``workloads``, on ``nodes`` (empty: all), with cancelled ones or not; the window."""

    workloads: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    exclude_cancelled: bool = False
    window: Window | None = None


def _nodes(_context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The names of --node, each without its domain. Raises UsageError."""
    if (wrong := next((text for text in value if not is_list(text)), None)) is not None:
        message, hint = f"--node: '{wrong}' is not a list of nodes", "--node n7, or --node 'n[1-4]'"
        raise UsageError(message, hint=hint, code="value-not-allowed", key="--node", value=wrong)
    return tuple(short_name(name) for text in value for name in expand(text))


node_option = click.option(
    "--node", "nodes", multiple=True, callback=_nodes, metavar="NODE", help="Ran on it: n7, n[1-4]."
)


def ran_on(wanted: Sequence[str], nodes: Iterable[str]) -> bool:
    """Whether one of a run's ``nodes`` is among those ``wanted``, which have no domain."""
    return not set(wanted).isdisjoint(map(short_name, nodes))


def choice_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-w``, ``--node``, ``--exclude-cancelled`` and ``--window``, which ``command`` takes as one ``choice``."""

    @wraps(command)
    def chosen(
        *args: Any,
        workloads: tuple[str, ...],
        nodes: tuple[str, ...],
        exclude_cancelled: bool,
        window: str | None,
        **others: Any,
    ) -> Any:
        counted = parse_window(window) if window is not None else None
        choice = Choice(workloads=workloads, nodes=nodes, exclude_cancelled=exclude_cancelled, window=counted)
        return command(*args, choice=choice, **others)

    text = "Only these workloads, as key or key_size."
    for option in (
        options.window_option,
        node_option,
        click.option("--exclude-cancelled", is_flag=True, help="Omit cancelled runs."),
        click.option("-w", "--workloads", multiple=True, callback=options.words, metavar="W", help=text),
    ):
        chosen = option(chosen)
    return chosen


@click.command("results")
@click.argument("runs", nargs=-1)
@choice_options
@options.reference_option
@click.option("--full-names", is_flag=True, help="Do not shorten names.")
@options.format_or_junit_option
@options.read_option
@pass_context
def command(
    context: Context, runs: tuple[str, ...], choice: Choice, reference: str | None, full_names: bool, fmt: str
) -> int:
    """Show results of RUNS (default: all runs), with verdicts.

    RUNS are unique prefixes of ids, job ids of the scheduler, or directories. If the first one is the file of an
    archive, the runs in it are shown.
    """
    runs = opened(context, runs)
    results = [result for _, result in gather(context, context.runs(runs), choice)]
    if not runs:
        results += unreadable(context, choice)
    archived = context.archive is not None
    return print_report(judged(context, results, reference), fmt, full_names=full_names, archived=archived)


def gather(context: Context, every: Sequence[RunRecord], choice: Choice) -> list[tuple[RunRecord, Result]]:
    """The selected runs of ``every``, with their results, not judged; prints whether cancelled ones are included."""
    wanted = workload_test(context, choice.workloads, [(run.job.workload, run.job.model_size) for run in every])
    found = [run for run in every if wanted(run.job.workload, run.job.model_size)]
    if not found:
        say("no run of these workloads" if every else "no runs yet; submit some: llmb-run submit-all jobs.txt")
    pairs = [
        (run, one)
        for run, one in zip(found, results_of(context, found, choice.window), strict=True)
        if not choice.nodes or ran_on(choice.nodes, all_nodes(run, context.states.get(run.id), one))
    ]
    if found and not pairs:
        say("no run matches the options")
    kept = _announce_cancelled([one for _, one in pairs if one.status == CANCELLED], choice)
    return [(run, one) for run, one in pairs if kept or one.status != CANCELLED]


def unreadable(context: Context, choice: Choice) -> list[Result]:
    """A result for each run whose record ``gather`` could not read; none where a ``choice`` needs it."""
    if choice.workloads or choice.nodes:
        return []
    return [
        Result(
            identity=Identity(experiment=one.directory.parent.name, path=context.shown(one.directory)),
            status=UNKNOWN,
            reason=one.reason,
        )
        for one in context.unreadable
    ]


def choose(context: Context, results: Sequence[Result], choice: Choice) -> list[Result]:
    """The selected results, which may be of another cluster."""
    own = [one.identity.configuration for one in results]
    known = [(each.workload, each.model_size) for each in own if each is not None]
    wanted = workload_test(context, choice.workloads, known)
    found = [
        one
        for one, each in zip(results, own, strict=True)
        if (wanted(each.workload, each.model_size) if each is not None else not choice.workloads)
    ]
    found = [one for one in found if not choice.nodes or (one.log and ran_on(choice.nodes, one.log.hosts))]
    kept = [one for one in found if not (choice.exclude_cancelled and one.status == CANCELLED)]
    if not kept:
        say("no run matches the options" if results else "the file has no runs")
    return kept


def all_nodes(run: RunRecord, state: JobState | None, result: Result | None) -> tuple[str, ...]:
    """The nodes that the scheduler names, else those that the run's log names."""
    logged = result.log.hosts if result is not None and result.log is not None else ()
    return nodes_of(run, state) or logged


def _announce_cancelled(cancelled: Sequence[Result], choice: Choice) -> bool:
    """Print whether cancelled runs are included; return it."""
    if cancelled:
        them = "it" if len(cancelled) == 1 else "them"
        done = "omitted" if choice.exclude_cancelled else f"listed; --exclude-cancelled omits {them}"
        say(f"note: {len(cancelled)} cancelled run{'s' if len(cancelled) > 1 else ''} {done}")
    return not choice.exclude_cancelled


def workload_test(
    context: Context, names: Sequence[str], known: Iterable[tuple[str, str]]
) -> Callable[[str, str], bool]:
    """A test whether ``names`` (empty: all) name a workload's key and size.

    ``known``: keys and sizes of runs, whose plugins may have been removed. Raises UsageError for an unknown name.
    """
    if not names:
        return lambda _key, _size: True
    sizes = {key: list(workload.sizes) for key, workload in context.workloads.items()}
    for key, size in known:
        sizes.setdefault(key, []).append(size)
    wanted = [find_workload_and_size(name, sizes) for name in names]
    return lambda key, size: any(key == one and each in (None, size) for one, each in wanted)


def states_of(context: Context, runs: Sequence[RunRecord]) -> dict[str, JobState]:
    """The current state of each run by its id, or the last known one where the cluster does not answer.

    Also where its type is not known here, or its plugin cannot make it: the results outlive the plugin.
    """
    states: dict[str, JobState] | None = None
    trouble: LlmbError | None = None
    if context.archive is None:
        try:
            states, trouble = look(context.need_cluster(), runs)
        except LlmbError as error:
            trouble = error
    if states is None:
        states = {run.id: last_seen(run) for run in runs}
    context.states |= states
    if trouble is not None and not all(state.is_final for state in states.values()):
        console.warn_once(completed(f"these are the last known states: {_why(context, trouble)}"), kind="note")
    away = [state for state in states.values() if state.is_elsewhere]
    if away:
        count = f"{len(away)} runs are" if len(away) > 1 else "1 run is"
        console.warn_once(f"{count} on another cluster: {away[0].detail} ({HINT_ELSEWHERE})")
    return states


def _why(context: Context, trouble: LlmbError) -> str:
    """Why the cluster cannot be asked; what is wrong with a skipped plugin is printed already."""
    name = context.config.cluster_type
    if context.config.kind is None:
        known = "no plugin that works" if context.plugins.cluster_types().skipped(name) else "no installed plugin"
        return f"{known} offers the cluster type {name}"
    return f"{trouble.message} ({trouble.hint})" if trouble.hint else trouble.message


def results_of(context: Context, runs: Sequence[RunRecord], window: Window | None = None) -> list[Result]:
    """The current results of ``runs``, not judged."""
    states = states_of(context, runs)
    peaks = peaks_of(context, runs)
    found = [result_of(context, run, states[run.id], peaks[run.job.gpu_type, run.job.dtype], window) for run in runs]
    if context.archive is None:
        return found
    own = [(one, replace(one.identity, path=context.shown(Path(one.identity.path)))) for one in found]
    return [replace(one, identity=identity) for one, identity in own]


def judged(
    context: Context, results: Sequence[Result], reference: str | None = None, baseline: Baseline | None = None
) -> list[Result]:
    """``results`` judged against the published figures, of the release ``reference`` where given, or ``baseline``.

    Reasons begin with what may explain a verdict: conditions that other runs of this install directory do not have.
    Raises UsageError when that release is unknown.
    """
    if reference is not None:
        check_release(reference, context.figures())
    found = _judge(context, results, reference, baseline)
    if not any(result.verdict.word in EXPLAINED for result in found):
        return found
    return with_causes(found, _judge(context, kept_results(context, found), reference, baseline))


def _judge(
    context: Context, results: Sequence[Result], reference: str | None, baseline: Baseline | None
) -> list[Result]:
    if baseline is not None:
        return judged_against(results, baseline.results, baseline.called)
    keys = {result.identity.configuration.workload for result in results if result.identity.configuration is not None}
    return judge(results, context.figures(keys), reference)


def print_report(results: Sequence[Result], fmt: str, *, full_names: bool, archived: bool = False) -> int:
    """Print ``results``, of an archive where ``archived``; the exit code that they end a command with."""
    if fmt == "json":
        console.echo(to_json(columns.report(results)), nl=False)
    elif fmt == "junit":
        console.echo(export.to_junit(map(export.junit_case, results)), nl=False)
    elif fmt == "csv":
        print_rows(columns.csv_columns(results), columns.csv_rows(results), fmt)
    else:
        print_runs(*table.table_of(results), fmt, full_names=full_names)
        for line in (*table.legend(results, archived=archived), *(digest(results) if fmt == "table" else ())):
            say(escape(line))
    return exit_code(results)


def exit_code(results: Iterable[Result]) -> int:
    """3 when a run ended without success or a verdict is FAIL or INVALID, else 1 when a log cannot be read, else 0."""
    results = list(results)
    if any(result.is_failure or result.verdict.word in BAD for result in results):
        return RUN_FAILED
    return LlmbError.exit_code if any(result.unreadable for result in results) else 0
