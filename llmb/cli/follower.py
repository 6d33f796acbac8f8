# SPDX-License-Identifier: Apache-2.0
"""Prints each end of the runs that are followed once, and the reason why others wait."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from llmb.cli.context import say
from llmb.cli.pace import NewestStep, is_queued_here
from llmb.contract.record import RunRecord
from llmb.contract.state import (
    ELSEWHERE_CODE,
    NEXT_CODE,
    PENDING,
    RUNNING,
    UNKNOWN,
    JobState,
)
from llmb.core.names import listed
from llmb.errors import LlmbError
from llmb.run.submission import SubmitResult

_REFUSALS = ("-refused", "-denied")  # the ends of codes of errors: the cluster did answer


def _behind_others(states: Sequence[JobState]) -> Sequence[JobState]:
    """The first of this machine's runs, if none has started and other jobs are before them.

    That runs of one list wait for each other is not worth a line.
    """
    return (
        states[:1]
        if all(
            state.state == PENDING and state.reason and state.code != NEXT_CODE for state in states
        )
        else []
    )


def held_states(states: Iterable[JobState]) -> list[JobState]:
    """Return the states of runs that wait for a known reason."""
    return [
        state
        for state in states
        if state.reason and not state.is_over and state.state not in (RUNNING, UNKNOWN)
    ]


def _reason_of(state: JobState) -> str:
    return f"{state.state}, {state.reason}"


def counted(held: Iterable[JobState]) -> str:
    """Return ``3 PENDING, Priority; 1 PENDING, Resources``."""
    counts = Counter(map(_reason_of, held))
    return "; ".join(f"{number} {reason}" for reason, number in counts.most_common())


class Follower:
    """Receives each round of polling, and prints each end once."""

    def __init__(self) -> None:
        self.printed: dict[str, str] = {}
        self.reasons: set[str] = set()
        self.hints: set[str] = set()  # of refusals, printed before
        self.slow: set[tuple[str, int]] = set()  # attempts that are reported as too slow

    def __call__(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        for run in runs:
            state = states[run.id]
            if self.printed.get(run.id, PENDING) != state.state:
                self.changed(run, state)
            self.printed[run.id] = state.state
        self.waiting(
            [
                *(states[run.id] for run in runs if not is_queued_here(run)),
                *_behind_others([states[run.id] for run in runs if is_queued_here(run)]),
            ]
        )
        self.round(runs, states)

    def changed(self, run: RunRecord, state: JobState) -> None:
        with_reason = state.reason and (state.is_over or state.state == UNKNOWN)
        reason = f": {state.reason}" if with_reason else ""
        self.line(f"{time_of_day()} {run.id} {self.named(run)} {state.state}{reason}")

    def retried(self, outcome: SubmitResult, end: JobState) -> None:
        run, error = outcome.run, outcome.error
        self.printed.pop(run.id, None)
        event = f"retried after {end.state}: attempt {run.attempt}"
        refusal = "" if error is None else f", which was refused: {error.message}"
        self.line(f"{time_of_day()} {run.id} {self.named(run)} {event}{refusal}")

    def submitted(self, result: SubmitResult) -> None:
        run, error = result.run, result.error
        if result.is_turned_away:
            return
        event = "submitted" if error is None else f"was not submitted: {error.message}"
        self.line(f"{time_of_day()} {run.id} {self.named(run)} {event}")

    def trouble(self, error: LlmbError) -> None:
        is_refusal = error.code.endswith(_REFUSALS)
        if error.code == ELSEWHERE_CODE:
            problem = f"{error.value} is elsewhere"
        else:
            problem = f"the cluster {'refuses' if is_refusal else 'does not answer'}, retrying"
        self.line(f"{time_of_day()} {problem}: {error.message}")
        # A cluster that does not answer may answer again. A refusal needs the user.
        if is_refusal and error.hint is not None and error.hint not in self.hints:
            self.hints.add(error.hint)
            self.line(f"hint: {error.hint}")

    def waiting(self, states: Sequence[JobState]) -> None:
        """Print why runs wait: one line for all of them, when a reason is new."""
        held = held_states(states)
        new = {_reason_of(state) for state in held} - self.reasons
        if not new:
            return
        self.line(f"{time_of_day()} waiting: {counted(held)}")
        self.print_fixes(state for state in held if _reason_of(state) in new)
        self.reasons |= new

    def print_fixes(self, held: Iterable[JobState]) -> None:
        """Print once for each reason what to do about it, if the cluster type knows."""
        for reason, fix in {state.reason: state.fix for state in held if state.fix}.items():
            self.line(f"note: {reason}: {fix}")

    def warn(self, run: RunRecord, pace: NewestStep) -> None:
        """Print once that an attempt is too slow, while its GPUs can still be saved."""
        reference = pace.reference
        if reference is None or not pace.is_too_slow or (run.id, run.attempt) in self.slow:
            return
        self.slow.add((run.id, run.attempt))
        differs = f" ({listed(reference.differences, 3)})" if reference.differences else ""
        self.line(
            f"{time_of_day()} {run.id} {self.named(run)} reaches {pace.ratio:.2f} of"
            f" {reference.name} at step {pace.at.iteration + 1}{differs}. Stop it: llmb-run jobs"
            f" cancel {run.id}"
        )

    def named(self, run: RunRecord) -> str:
        """Return the name of ``run`` in lines."""
        return run.job.experiment_name

    def line(self, text: str) -> None:
        say(text)

    def round(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        """Show progress between changes."""


def time_of_day() -> str:
    """The time of day now, before each line."""
    return time.strftime("%H:%M:%S")
