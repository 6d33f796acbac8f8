# SPDX-License-Identifier: Apache-2.0
"""Selects runs: the options of every command that shows results, and how their runs are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from llmb.cli import options
from llmb.cli.context import Context, say

if TYPE_CHECKING:
    from llmb.results.result import Result
    from llmb.runs.record import RunRecord
    from llmb.stats.measure import Window

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which runs are selected: of ``workloads`` (empty: all), with or without cancelled ones; and the window."""

    workloads: tuple[str, ...] = ()
    exclude_cancelled: bool = False
    window: Window | None = None


def choice_options(command: F) -> F:
    """Add ``-w``, ``--exclude-cancelled`` and ``--window``, whose values ``choice_of`` reads."""
    text = "Only these workloads, as key or key_size."
    for option in (
        options.window_option,
        click.option("--exclude-cancelled", is_flag=True, help="Omit cancelled runs."),
        click.option("-w", "--workloads", multiple=True, callback=options.words, metavar="W", help=text),
    ):
        command = option(command)
    return command


def choice_of(workloads: tuple[str, ...], exclude_cancelled: bool, window: str | None) -> Choice:
    """The choice that the options make. Raises UsageError."""
    from llmb.stats.measure import parse_window

    counted = parse_window(window) if window is not None else None
    return Choice(workloads=workloads, exclude_cancelled=exclude_cancelled, window=counted)


def gather(context: Context, names: tuple[str, ...], choice: Choice) -> list[tuple[RunRecord, Result]]:
    """The selected runs among those that ``names`` mean (empty: all), with their results, not judged.

    Raises UsageError for a name that means none or several.
    """
    return gather_of(context, context.runs(names), choice)


def gather_of(context: Context, every: Sequence[RunRecord], choice: Choice) -> list[tuple[RunRecord, Result]]:
    """The selected runs of ``every``, with their results, not judged; prints whether cancelled ones are included."""
    from llmb.cli.results.judged import results_of
    from llmb.results.result import CANCELLED

    wanted = _wanted(context, choice, [(run.job.workload, run.job.model_size) for run in every])
    found = [run for run in every if wanted(run.job.workload, run.job.model_size)]
    if not found:
        say("no run of these workloads" if every else "no runs yet; submit some: llmb-run submit-all jobs.txt")
    results = results_of(context, found, choice.window)
    kept = _announce_cancelled([result for result in results if result.status == CANCELLED], choice)
    return [(run, one) for run, one in zip(found, results, strict=True) if kept or one.status != CANCELLED]


def unreadable(context: Context) -> list[Result]:
    """A result for each run whose record ``gather`` could not read."""
    from llmb.results.result import UNKNOWN, Identity, Result

    return [
        Result(
            identity=Identity(experiment=one.directory.parent.name, path=str(one.directory)),
            status=UNKNOWN,
            reason=one.reason,
        )
        for one in context.unreadable
    ]


def choose(context: Context, results: Sequence[Result], choice: Choice) -> list[Result]:
    """The selected results, which may be of another cluster."""
    from llmb.results.result import CANCELLED

    own = [one.identity.configuration for one in results]
    wanted = _wanted(context, choice, [(each.workload, each.model_size) for each in own if each is not None])
    found = [
        one
        for one, each in zip(results, own, strict=True)
        if (wanted(each.workload, each.model_size) if each is not None else not choice.workloads)
    ]
    kept = [one for one in found if not (choice.exclude_cancelled and one.status == CANCELLED)]
    if not kept:
        say("no run matches the options" if results else "the file has no runs")
    return kept


def _announce_cancelled(cancelled: Sequence[Result], choice: Choice) -> bool:
    """Print whether cancelled runs are included; return it."""
    if cancelled:
        them = "it" if len(cancelled) == 1 else "them"
        done = "omitted" if choice.exclude_cancelled else f"listed; --exclude-cancelled omits {them}"
        say(f"note: {len(cancelled)} cancelled run{'s' if len(cancelled) > 1 else ''} {done}")
    return not choice.exclude_cancelled


def _wanted(context: Context, choice: Choice, known: Iterable[tuple[str, str]]) -> Callable[[str, str], bool]:
    """A test for a workload's key and size; ``known``: those of runs, whose plugins may have been removed."""
    from llmb.text.names import find_workload_and_size

    if not choice.workloads:
        return lambda _key, _size: True
    sizes = {key: list(workload.sizes) for key, workload in context.workloads.items()}
    for key, size in known:
        sizes.setdefault(key, []).append(size)
    wanted = [find_workload_and_size(name, sizes) for name in choice.workloads]
    return lambda key, size: any(key == one and each in (None, size) for one, each in wanted)
