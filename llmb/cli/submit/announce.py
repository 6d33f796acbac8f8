# SPDX-License-Identifier: Apache-2.0
"""Reports of runs while they are submitted, and the end of an interrupted submission."""

import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

from llmb.cli.context import CliContext, say
from llmb.cli.output import print_rows
from llmb.contract.cluster import Cluster, UnclearError
from llmb.contract.record import RunRecord
from llmb.core.tables import Column, shorten
from llmb.errors import describe
from llmb.run import reconcile
from llmb.run.backlog import Backlog
from llmb.run.submission import SubmitResult

_LEAST_NAME = 12  # characters of a name in a narrow terminal
_NAMED = 8  # runs that fit on a line


class Announcer:
    """Report each run that was submitted or refused. A shared reason is printed once.

    If ``verbose``, with the scheduler's id, the script and the log.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        self.reasons: set[str] = set()
        self.verbose = verbose

    def __call__(self, result: SubmitResult) -> None:
        """Print a line for the run, and the reason of a refusal.

        A run that a full queue turned away is submitted later: ``sum_up`` counts it.
        """
        if result.is_turned_away:
            return
        run, error = result.run, result.error
        attempt = f"  attempt {run.attempt}" if run.attempt > 1 else ""
        if error is None:
            by_other = "" if run.scheduler_id else "  another process is submitting it"
            say(f"  {run.id}  {_name(run)}{attempt}{by_other}")
            if self.verbose:
                say(
                    f"      job {run.scheduler_id or 'unknown'}  script {run.script}  log {run.log}"
                )
            return
        is_unclear = isinstance(error, UnclearError)
        reason = describe(error)
        if is_unclear:
            reason += (
                "\nnote: nothing is lost: llmb-run jobs reconcile finds the job, or submits it if"
                " it was refused"
            )
        status = "may have been submitted or not" if is_unclear else "was not submitted"
        say(
            f"  {run.id}  {run.name}{attempt} "
            f" {status}{', for the same reason' if reason in self.reasons else ''}"
        )
        if reason not in self.reasons:
            say(reason)
        self.reasons.add(reason)


def _name(run: RunRecord) -> str:
    """Return the name of the run's folder, on a terminal shortened to what fits in a line."""
    if not sys.stderr.isatty():
        return run.name
    width = len(f"  {run.id}  ")
    return shorten(run.name, max(shutil.get_terminal_size().columns - width, _LEAST_NAME))


def sum_up(
    results: Sequence[SubmitResult], backlog: Backlog[Any], count: int, *, waits: bool
) -> None:
    """Print the totals and the next command if not all of ``count`` jobs were submitted."""
    submitted = sum(result.error is None for result in results)
    errors = [result for result in results if result.error is not None]
    refused = [result for result in errors if not isinstance(result.error, UnclearError)]
    if count > 1 and (errors or backlog.count):
        numbers = {
            "refused": len(refused),
            "unknown": len(errors) - len(refused),
            "waiting for a place in the queue" if backlog.is_due else "not tried": backlog.count,
        }
        counts = [f", {number} {word}" for word, number in numbers.items() if number]
        say(f"{submitted} of {count} submitted{''.join(counts)}")
    if backlog.is_due:
        say(f"note: {_why_full(backlog, submitted)}")
    if ids := [result.run.id for result in refused if result.is_recorded]:
        named = " ".join(ids) if len(ids) <= _NAMED else "--failed"
        say(f"hint: fix the cause, then llmb-run jobs retry {named}")
    if backlog.is_due and waits:
        say("llmb submits the rest as jobs end")
    elif backlog.is_due:
        say(f"hint: submit the rest later: {backlog.command}")
    elif count > 1 and (backlog.count or len(ids) < len(refused)):
        say("hint: the same command with --resume submits the others")


def _why_full(backlog: Backlog[Any], submitted: int) -> str:
    if backlog.full is not None:
        return backlog.full.message
    other_runs = len(backlog.others) + backlog.under_way
    earlier = f", and {other_runs} {'was' if other_runs == 1 else 'were'} there before"
    return f"at most {backlog.limit} of your runs are in the queue{earlier if other_runs else ''}"


def print_submitted(runs: Sequence[RunRecord], fmt: str) -> None:
    """Print the submitted runs as data. A table has none: each run was reported already."""
    if fmt == "table":
        return
    rows = [
        {
            "id": run.id,
            "scheduler_id": run.scheduler_id,
            "attempt": run.attempt,
            "experiment": run.job.experiment_name,
            "repeat": run.job.repeat,
            "directory": str(run.directory),
        }
        for run in runs
    ]
    names = ("id", "scheduler_id", "attempt", "experiment", "repeat", "directory")
    print_rows([Column(key=name) for name in names], rows, fmt)


def announce_interrupt() -> None:
    """Report what Ctrl-C does during a submission."""
    say("interrupted: finishing the submissions under way; press Ctrl-C again to stop at once")


def resender(
    cluster: Cluster,
) -> Callable[
    [Sequence[RunRecord], Callable[[SubmitResult], None]], tuple[list[SubmitResult], bool]
]:
    """Return the function that submits recorded runs of a submission that was cut off."""
    announced: set[str] = set()

    def resend(
        runs: Sequence[RunRecord], on_result: Callable[[SubmitResult], None]
    ) -> tuple[list[SubmitResult], bool]:
        if cut_off := [run for run in runs if run.id not in announced]:
            say(f"submitting {len(cut_off)} of an interrupted submission:")
        announced.update(run.id for run in runs)
        return reconcile.resubmit(
            cluster,
            runs,
            on_result=on_result,
            on_wait=_announce_wait,
            on_interrupt=announce_interrupt,
        )

    return resend


def resubmit(context: CliContext, runs: Sequence[RunRecord]) -> int:
    """Submit the runs of an interrupted submission and return the number of refused ones.

    Raises KeyboardInterrupt.
    """
    results, interrupted = reconcile.resubmit(
        context.need_cluster(),
        runs,
        on_result=Announcer(),
        on_wait=_announce_wait,
        on_interrupt=announce_interrupt,
    )
    if full := next((result.error for result in results if result.is_turned_away), None):
        say(describe(full))
    if interrupted:
        raise KeyboardInterrupt
    return sum(result.error is not None for result in results)


def _announce_wait(seconds: float) -> None:
    lasts = f"{seconds:.0f} s or more" if seconds >= 1 else "a moment"
    say(f"waiting {lasts}: an interrupted submission may still arrive")
