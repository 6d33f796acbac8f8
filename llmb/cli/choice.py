# SPDX-License-Identifier: Apache-2.0
"""The runs that a command is about: its options that select runs, and the results of those."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any

import click

from llmb.cli import options
from llmb.cli.context import CliContext, say, select_runs
from llmb.cli.judging import results_of, states_of
from llmb.contract.record import RunRecord, Session
from llmb.contract.state import WAITING, JobState
from llmb.contract.window import Window, parse_window
from llmb.core import console
from llmb.core.names import find_workload_and_size, listed, suggest
from llmb.core.node_lists import expand, is_list, not_a_list, short_name
from llmb.core.times import since
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.judge.per_metric import only_by
from llmb.measure.result import CANCELLED, UNKNOWN, Identity, Result
from llmb.measure.run_result import with_cost
from llmb.run import sessions
from llmb.run.store import Unreadable, nodes_of

NO_RUN = (
    "No runs yet. See what can run here: llmb-run list. Submit a job list: llmb-run submit JOBLIST"
)
_NAMED_SESSIONS = 4  # in a line


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
        raise not_a_list(invalid, "--node")
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
    try:
        named = select_runs(list(all_runs), names)
    except UsageError as error:
        if sessions.find(str(error.value), sessions.group(all_runs)) is not None:
            error.hint = f"it is a session: --session {error.value}"
        raise
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
        message = NO_RUN if is_any else "no run matches the options"
        say("no run of these workloads" if runs else message)
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
    """The nodes that the scheduler names, else those in the run's log. None if it waits."""
    if state is not None and state.state in WAITING:
        return ()
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
