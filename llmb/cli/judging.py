# SPDX-License-Identifier: Apache-2.0
"""The states of runs, their results and verdicts, for every command."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from llmb.cli.context import CliContext, completed
from llmb.cli.reading import kept_results, peaks_of, result_of
from llmb.contract.cluster import HINT_ELSEWHERE
from llmb.contract.record import RunRecord
from llmb.contract.state import JobState
from llmb.contract.window import Window
from llmb.core import console, locks
from llmb.core.parallel import helped_by_forks
from llmb.errors import LlmbError
from llmb.judge.compare import judged_against
from llmb.judge.export import Baseline
from llmb.judge.judge import judge
from llmb.judge.sustained import with_sustained
from llmb.judge.verdict_causes import EXPLAINED, with_causes
from llmb.kit.seen_state import last_seen
from llmb.measure.result import Result
from llmb.measure.summary import can_keep
from llmb.plan.published import check_release
from llmb.run.polling import try_poll

_WORTH_FORKS = 100  # runs without a summary


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
    return result.with_identity(path=context.shown(Path(result.identity.path)))


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
    return with_causes(verdicts, _judge(context, kept_results(runs, verdicts), reference, baseline))


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
