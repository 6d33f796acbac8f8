# SPDX-License-Identifier: Apache-2.0
"""`llmb-run results`, and the selection, verdicts and printing of results for every command."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from llmb.cli import options
from llmb.cli.context import CliContext, completed, pass_context, say, select_runs
from llmb.cli.output import print_rows, print_runs
from llmb.cli.reading import kept_results, opened, peaks_of, result_of
from llmb.contract.cluster import HINT_ELSEWHERE
from llmb.contract.record import RunRecord, Session
from llmb.contract.state import JobState
from llmb.contract.window import Window, parse_window
from llmb.core import console, locks
from llmb.core.names import find_workload_and_size, listed, suggest
from llmb.core.node_lists import expand, is_list, short_name
from llmb.core.parallel import helped_by_forks
from llmb.core.tables import escape, to_json
from llmb.core.times import since
from llmb.core.values import dataclass
from llmb.errors import RUN_FAILED, LlmbError, UsageError
from llmb.judge import export
from llmb.judge.compare import judged_against
from llmb.judge.export import Baseline
from llmb.judge.far_runs import far_runs
from llmb.judge.judge import judge, pools_of
from llmb.judge.per_metric import only_by
from llmb.judge.sustained import with_sustained
from llmb.judge.value import BAD, INCONCLUSIVE
from llmb.judge.verdict_causes import EXPLAINED, with_causes
from llmb.measure import columns
from llmb.measure.result import CANCELLED, UNKNOWN, Identity, Result
from llmb.measure.run_result import with_cost
from llmb.measure.summary import can_keep
from llmb.plan.published import check_release
from llmb.run import sessions
from llmb.run.polling import last_seen, try_poll
from llmb.run.store import Unreadable, nodes_of
from llmb.show import results_table
from llmb.show.report.digest import digest

NO_RUN = (
    "No runs yet. See what can run here: llmb-run list. Submit a job list: llmb-run submit JOBLIST"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The selection of runs, and the window of their results."""

    workloads: tuple[str, ...] = ()  # keys, or keys with a size; empty: all
    nodes: tuple[str, ...] = ()  # runs that used one of these; empty: all
    exclude_cancelled: bool = False
    window: Window | None = None
    sessions: tuple[str, ...] = ()  # ids, names, last or all; empty: the newest
    earliest: float | None = None  # only sessions with a run since this moment
    metric: str | None = None  # the one to show and judge; None: each run's headline, and all
    price: float | None = None  # of a GPU for an hour; None: that of cluster_config.yaml


def _nodes(
    _context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """The names of --node, each without its domain. Raises UsageError."""
    if (invalid := next((text for text in value if not is_list(text)), None)) is not None:
        raise UsageError(
            f"--node: '{invalid}' is not a list of nodes",
            hint="--node n7, or --node 'n[1-4]'",
            code="value-not-allowed",
            key="--node",
            value=invalid,
        )
    return tuple(short_name(name) for text in value for name in expand(text))


def _earliest(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> float | None:
    """The moment of --since. Raises UsageError."""
    return None if value is None else moment_of(value)


def moment_of(text: str) -> float:
    """The moment of an age or a date, in seconds since the epoch. Raises UsageError."""
    try:
        return since(text, time.time())
    except ValueError as error:
        raise UsageError(
            f"--since: '{text}' {error}",
            hint="--since 2d",
            code="value-not-allowed",
            key="--since",
            value=text,
        ) from error


session_option = click.option(
    "--session",
    "sessions",
    multiple=True,
    callback=options.words,
    metavar="ID|NAME",
    help="Only this session, last or all (default: last).",
)
node_option = click.option(
    "--node", "nodes", multiple=True, callback=_nodes, metavar="NODE", help="Ran on it: n7, n[1-4]."
)


price_option = click.option(
    "--price",
    type=click.FloatRange(min=0, min_open=True),
    metavar="P",
    help="What a GPU costs for an hour: shows the cost of tokens.",
)


def ran_on(selected: Sequence[str], nodes: Iterable[str]) -> bool:
    """Return True if one of a run's ``nodes`` is among the ``selected``, which have no domain."""
    return not set(selected).isdisjoint(map(short_name, nodes))


def choice_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of Choice, which ``command`` takes as one ``choice``."""

    @wraps(command)
    def chosen(*args: Any, **values: Any) -> Any:
        choice = {key.name: values.pop(key.name) for key in fields(Choice)}
        if choice["window"] is not None:
            choice["window"] = parse_window(choice["window"])
        return command(*args, choice=Choice(**choice), **values)

    text = "Only these workloads, as key or key_size."
    for option in (
        options.window_option,
        price_option,
        click.option("--metric", metavar="NAME", help="Show and judge only this metric."),
        click.option(
            "--since",
            "earliest",
            callback=_earliest,
            metavar="AGE",
            help="Sessions of the last 12h, 3d, 1w, or since a date.",
        ),
        session_option,
        node_option,
        click.option("--exclude-cancelled", is_flag=True, help="Omit cancelled runs."),
        click.option(
            "-w", "--workloads", multiple=True, callback=options.words, metavar="W", help=text
        ),
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
    context: CliContext,
    runs: tuple[str, ...],
    choice: Choice,
    reference: str | None,
    full_names: bool,
    fmt: str,
) -> int:
    """Show results of RUNS (default: the newest session), with verdicts.

    RUNS are unique prefixes of ids, job ids of the scheduler, or directories. If the first one is
    the file of an archive, the runs in it are shown.
    """
    names = opened(context, runs)
    all_runs, damaged = context.read_runs()
    chosen = choose_runs(all_runs, names, choice)
    measured = gather(context, chosen, choice)
    results = [result for *_, result in measured]
    if not names:
        results += unreadable_results(context, damaged, choice)
    return print_report(
        judged(context, results, reference, runs=all_runs),
        fmt,
        full_names=full_names,
        archived=context.archive is not None,
        sessions=sessions_of([run for run, *_ in measured]),
    )


def choose_runs(
    all_runs: Sequence[RunRecord],
    names: tuple[str, ...],
    choice: Choice,
    *,
    by_default: tuple[str, ...] = (sessions.LAST,),
) -> list[RunRecord]:
    """Return the runs that ``names`` name, else those of the chosen sessions.

    Prints which sessions are shown and how many others there are. Raises UsageError for an unknown
    run or session.
    """
    named = select_runs(list(all_runs), names)
    if names and not choice.sessions and choice.earliest is None:
        return named
    selected = choice.sessions or (by_default if choice.earliest is None else ())
    selection = sessions.select(all_runs, selected, choice.earliest)
    announce_sessions(selection)
    ids = {run.id for run in named}
    return [run for run in selection.runs if run.id in ids]


def announce_sessions(selection: sessions.SelectedSessions) -> None:
    """Print the sessions that are shown if there are others."""
    if not selection.others:
        return
    names = [sessions.in_words(group.session) for group in selection.shown]
    if not names:
        say("note: no session matches the options; --session all shows every session")
        return
    titles = listed(names, _NAMED_SESSIONS)
    count = f"{selection.others} other{'s' if selection.others > 1 else ''}"
    line = f"session{'s' if len(names) > 1 else ''} {titles}; {count}: --session ID, or all"
    if console.is_first(line):  # an export asks for results, then for their times
        say(line)


_NAMED_SESSIONS = 4  # in a line


def sessions_of(runs: Iterable[RunRecord]) -> list[Session]:
    """Return the sessions of ``runs``, oldest first."""
    return [group.session for group in sessions.group(runs)]


def gather(
    context: CliContext, runs: Sequence[RunRecord], choice: Choice
) -> list[tuple[RunRecord, JobState, Result]]:
    """Select from ``runs`` and return each with its state and its result, which is not judged.

    Prints whether cancelled runs are included.
    """
    is_selected = workload_test(
        context, choice.workloads, [(run.job.workload, run.job.model_size) for run in runs]
    )
    selected = [run for run in runs if is_selected(run.job.workload, run.job.model_size)]
    if not selected:
        is_any = not choice.sessions and choice.earliest is None
        none = NO_RUN if is_any else "no run matches the options"
        say("no run of these workloads" if runs else none)
    states = states_of(context, selected)
    price = choice.price or context.config.price_per_gpu_hour
    results = [
        with_cost(result, price) for result in results_of(context, selected, states, choice.window)
    ]
    measured = [
        (run, states[run.id], result)
        for run, result in zip(selected, results, strict=True)
        if not choice.nodes or ran_on(choice.nodes, all_nodes(run, states[run.id], result))
    ]
    if selected and not measured:
        say("no run matches the options")
    about = by_metric([result for *_, result in measured], choice.metric)
    measured = [
        (run, state, result) for (run, state, _), result in zip(measured, about, strict=True)
    ]
    cancelled = sum(result.status == CANCELLED for *_, result in measured)
    if _announce_cancelled(cancelled, choice):
        return measured
    return [entry for entry in measured if entry[2].status != CANCELLED]


def unreadable_results(
    context: CliContext, damaged: Sequence[Unreadable], choice: Choice
) -> list[Result]:
    """A result for each run whose record is damaged; none if the ``choice`` depends on records."""
    if choice.workloads or choice.nodes:
        return []
    return [
        Result(
            identity=Identity(
                experiment=run.directory.parent.name, path=context.shown(run.directory)
            ),
            status=UNKNOWN,
            reason=run.reason,
        )
        for run in damaged
    ]


def choose(context: CliContext, results: Sequence[Result], choice: Choice) -> list[Result]:
    """The selected results, which may be of another cluster."""
    names = [
        (configuration.workload, configuration.model_size)
        for result in results
        if (configuration := result.identity.configuration) is not None
    ]
    is_named = workload_test(context, choice.workloads, names)

    def is_selected(result: Result) -> bool:
        configuration = result.identity.configuration
        if configuration is None:
            has_workload = not choice.workloads
        else:
            has_workload = is_named(configuration.workload, configuration.model_size)
        has_node = not choice.nodes or (result.log and ran_on(choice.nodes, result.log.hosts))
        is_omitted = choice.exclude_cancelled and result.status == CANCELLED
        return bool(has_workload and has_node and not is_omitted)

    selected = [result for result in results if is_selected(result)]
    if not selected:
        say("no run matches the options" if results else "the file has no runs")
    return by_metric(selected, choice.metric)


def by_metric(results: Sequence[Result], metric: str | None) -> list[Result]:
    """Return ``results`` about ``metric`` alone. Raises UsageError if none measured it."""
    if metric is None:
        return list(results)
    names = list(dict.fromkeys(name for result in results for name in result.metrics.measured))
    if names and metric not in names:
        raise UsageError(
            f"--metric: no run measured '{metric}'",
            hint=suggest(metric, names),
            code="metric-unknown",
            key="--metric",
            value=metric,
        )
    return [only_by(result, metric) for result in results]


def all_nodes(run: RunRecord, state: JobState | None, result: Result | None) -> tuple[str, ...]:
    """The nodes that the scheduler names, else the nodes in the run's log."""
    logged = result.log.hosts if result is not None and result.log is not None else ()
    return nodes_of(run, state) or logged


def _announce_cancelled(count: int, choice: Choice) -> bool:
    """Print if ``count`` cancelled runs are included, and return it."""
    if count:
        pronoun = "it" if count == 1 else "them"
        listed = f"listed; --exclude-cancelled omits {pronoun}"
        status = "omitted" if choice.exclude_cancelled else listed
        note = f"note: {count} cancelled run{'s' if count > 1 else ''} {status}"
        if console.is_first(note):  # both sides of a comparison may have some
            say(note)
    return not choice.exclude_cancelled


def workload_test(
    context: CliContext, names: Sequence[str], run_sizes: Iterable[tuple[str, str]]
) -> Callable[[str, str], bool]:
    """A test of a workload's key and size for ``names`` (empty: all pass).

    ``run_sizes``: keys and sizes of runs, whose plugins may have been removed. Raises UsageError
    for an unknown name.
    """
    if not names:
        return lambda _key, _size: True
    sizes: dict[str, dict[str, object]] = {
        key: {**workload.sizes} for key, workload in context.workloads.items()
    }
    for key, size in run_sizes:
        sizes.setdefault(key, {}).setdefault(size, None)
    named = [find_workload_and_size(name, sizes) for name in names]
    return lambda key, size: (key, size) in named or (key, None) in named


def states_of(context: CliContext, runs: Sequence[RunRecord]) -> dict[str, JobState]:
    """The state of each run by its id, or the last known one if the cluster cannot be asked.

    Results outlive plugins: the cluster type may be unknown here, or its plugin may fail.
    """
    states: dict[str, JobState] | None = None
    trouble: LlmbError | None = None
    if context.archive is None:
        try:
            states, trouble = try_poll(context.need_cluster(), runs)
        except LlmbError as error:
            trouble = error
    if states is None:
        states = {run.id: last_seen(run) for run in runs}

    if trouble is not None and not all(state.is_final for state in states.values()):
        console.warn_once(
            completed(f"these are the last known states: {_reason_of(context, trouble)}"),
            kind="note",
        )
    away = [state for state in states.values() if state.is_elsewhere]
    if away:
        count = f"{len(away)} runs are" if len(away) > 1 else "1 run is"
        console.warn_once(f"{count} on another cluster: {away[0].detail} ({HINT_ELSEWHERE})")
    return states


def _reason_of(context: CliContext, trouble: LlmbError) -> str:
    """The reason why the cluster cannot be asked. Faults of skipped plugins are printed already."""
    name = context.config.cluster_type
    if context.config.kind is None:
        offering = (
            "no plugin that works"
            if context.plugins.cluster_types().skipped(name)
            else "no installed plugin"
        )
        return f"{offering} offers the cluster type {name}"
    return f"{trouble.message} ({trouble.hint})" if trouble.hint else trouble.message


_WORTH_FORKS = 100  # runs without a summary


def results_of(
    context: CliContext,
    runs: Sequence[RunRecord],
    states: Mapping[str, JobState],
    window: Window | None = None,
) -> list[Result]:
    """The results of ``runs`` in their ``states`` (by their ids), not judged."""
    peaks = peaks_of(context, runs)

    def read(run: RunRecord) -> Result:
        peak = peaks[run.job.gpu_type, run.job.dtype]
        return result_of(context, run, states[run.id], peak, window)

    unread: list[RunRecord] = []
    if window is None:
        unread = [run for run in runs if states[run.id].is_final and can_keep(run)]
    results = _read_with_help(read, runs, unread)
    return (
        results if context.archive is None else [_in_archive(context, result) for result in results]
    )


def _read_with_help(
    read: Callable[[RunRecord], Result], runs: Sequence[RunRecord], unread: Sequence[RunRecord]
) -> list[Result]:
    """Return the results of ``runs``. Forks read many that are ``unread``, too.

    A fork keeps summaries, which are read here, with the warnings that belong to them.
    """
    if len(unread) < _WORTH_FORKS:
        return [read(run) for run in runs]
    locks.rest()
    numbers = {run.id: number for number, run in enumerate(unread)}
    results = []
    with helped_by_forks(read, unread) as begin:
        for run in runs:
            if run.id in numbers:
                begin(numbers[run.id])
            results.append(read(run))
    return results


def _in_archive(context: CliContext, result: Result) -> Result:
    """The result with the path in the archive, not that of the unpacked copy."""
    path = context.shown(Path(result.identity.path))
    return replace(result, identity=replace(result.identity, path=path))


def judged(
    context: CliContext,
    results: Sequence[Result],
    reference: str | None = None,
    baseline: Baseline | None = None,
    runs: Sequence[RunRecord] = (),
) -> list[Result]:
    """Judge ``results`` against the published figures (default: the newest) or ``baseline``.

    Reasons begin with conditions that may explain a verdict, because others of ``runs``, those of
    the install directory, do not have them. Raises UsageError when release ``reference`` is
    unknown.
    """
    if reference is not None:
        check_release(reference, context.figures())
    verdicts = [*map(with_sustained, _judge(context, results, reference, baseline))]
    if not any(result.verdict.word in EXPLAINED for result in verdicts):
        return verdicts
    peers = _judge(context, kept_results(runs, verdicts), reference, baseline)
    return with_causes(verdicts, peers)


def _judge(
    context: CliContext, results: Sequence[Result], reference: str | None, baseline: Baseline | None
) -> list[Result]:
    if baseline is not None:
        return judged_against(results, baseline.results, baseline.called)
    keys = {
        result.identity.configuration.workload
        for result in results
        if result.identity.configuration is not None
    }
    return judge(results, context.figures(keys), reference)


def print_report(
    results: Sequence[Result],
    fmt: str,
    *,
    full_names: bool,
    archived: bool = False,
    sessions: Sequence[Session] = (),
) -> int:
    """Print ``results`` (``archived``: of an archive) and return the exit code of the command."""
    if fmt == "json":
        console.echo(to_json(columns.report(results, sessions)), nl=False)
    elif fmt == "junit":
        console.echo(export.to_junit(map(export.junit_case, results)), nl=False)
    elif fmt == "csv":
        print_rows(columns.csv_columns(results), columns.csv_rows(results), fmt)
    else:
        print_runs(*results_table.table_of(results), fmt, full_names=full_names)
        for line in (
            *results_table.legend(results, archived=archived),
            *(digest(results) if fmt == "table" else ()),
            *(_undecided(results) if fmt == "table" else ()),
        ):
            say(escape(line))
    return exit_code(results)


def _undecided(results: Sequence[Result]) -> list[str]:
    """Return a line for each run that is far from its repeats, which have no clear verdict."""
    results = [result for result in results if result.verdict.word == INCONCLUSIVE]
    return [f"note: {run}, which widens intervals" for run in far_runs(pools_of(results))]


def exit_code(results: Iterable[Result]) -> int:
    """3 if a run failed or a verdict is FAIL or INVALID, else 1 if a log cannot be read, else 0."""
    results = list(results)
    if any(result.is_failure or result.verdict.word in BAD for result in results):
        return RUN_FAILED
    return LlmbError.exit_code if any(result.unreadable for result in results) else 0
