# SPDX-License-Identifier: Apache-2.0
"""Follows runs: a live view on a terminal, else a line for each change."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llmb.cli.context import CliContext, say
from llmb.cli.follower import Follower, time_of_day
from llmb.cli.pace import Paces, left_in_words
from llmb.contract.record import RunRecord
from llmb.contract.state import RUNNING, WAITING, JobState
from llmb.errors import INTERRUPTED
from llmb.run import sessions
from llmb.run.follow import OnRound, Watcher, wait

if TYPE_CHECKING:
    from llmb.run.backlog import Backlog

_NAMED = 4  # runs that fit in a line
_QUIET = 5.0  # seconds: a run has no more than one line for its steps in them


def follow(
    context: CliContext,
    runs: Sequence[RunRecord],
    retries: int = 0,
    backlog: Backlog[Any] | None = None,
    on_round: OnRound = lambda runs, states: None,
) -> tuple[list[RunRecord], dict[str, JobState]]:
    """Show the steps of ``runs`` until all have ended and return runs and states.

    With retries, the returned runs are the last attempts. The jobs of ``backlog`` are submitted as
    others end. ``on_round`` is called in each round. Ctrl-C stops watching and keeps the jobs
    running.
    """
    cluster = context.need_cluster()
    count = len(runs) + (backlog.count if backlog is not None else 0)
    try:
        with _display(context, count) as show:

            def tell(runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
                show(runs, states)
                on_round(runs, states)

            watcher = Watcher(
                on_round=tell,
                between_rounds=show.round,
                on_retry=show.retried,
                on_trouble=show.trouble,
                on_submit=show.submitted,
            )
            return wait(cluster, runs, watcher, retries=retries, source=backlog)
    except KeyboardInterrupt:
        if context.is_called:  # the plugin's command says what to do
            raise click.exceptions.Exit(INTERRUPTED) from None
        names = "".join(f" {run.id}" for run in runs) if len(runs) <= _NAMED else ""
        # not all of the install directory: others may run there
        session_ids = dict.fromkeys(sessions.session_of(run).id for run in runs)
        of_sessions = "".join(f" --session {id_}" for id_ in session_ids)
        cancel = f"llmb-run jobs cancel{names or of_sessions}"
        say("Stopped watching. The jobs keep running.")
        if backlog is not None and backlog.count:
            jobs = "1 job is" if backlog.count == 1 else f"{backlog.count} jobs are"
            say(f"{jobs} not submitted. Submit the rest: {backlog.command}")
        say(f"Watch again: llmb-run jobs wait{names or of_sessions}")
        say(f"Cancel: {cancel}")
        raise click.exceptions.Exit(INTERRUPTED) from None


@contextmanager
def _display(context: CliContext, count: int) -> Iterator[Follower]:
    if sys.stderr.isatty():
        from llmb.cli import live_view

        with live_view.shown(context, count) as bars:
            yield bars
    else:
        yield _Lines(Paces(context))


class _Lines(Follower):
    """Prints a line for each change, and a line for each tenth of a run's steps.

    A run of a few seconds needs no progress, and a fast one does not flood a log.
    """

    def __init__(self, paces: Paces, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.paces, self.clock = paces, clock
        self.last_news: dict[str, float] = {}
        self.tenths: dict[Path, int] = {}

    def changed(self, run: RunRecord, state: JobState) -> None:
        super().changed(run, state)
        self.last_news[run.id] = self.clock()
        if state.state in WAITING:  # requeued: it starts again
            self.tenths.pop(run.log, None)

    def round(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        for run in runs:
            if states[run.id].state == RUNNING:
                self.step(run)

    def step(self, run: RunRecord) -> None:
        pace = self.paces.of(run)
        if pace is None:
            return
        self.warn(run, pace)
        if self.clock() - self.last_news.get(run.id, -math.inf) < _QUIET:
            return
        step, steps = pace.at.iteration + 1, pace.at.last + 1
        if (tenth := 10 * step // steps) <= self.tenths.get(run.log, 0):
            return
        self.tenths[run.log] = tenth
        self.last_news[run.id] = self.clock()
        seconds_left = pace.seconds_left
        facts = [pace.in_words(), left_in_words(seconds_left) if seconds_left else ""]
        text = ", ".join([f"step {step} of {steps}", *filter(None, facts)])
        self.line(f"{time_of_day()} {run.id} {run.job.experiment_name} {text}")
