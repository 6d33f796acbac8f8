# SPDX-License-Identifier: Apache-2.0
"""Says what becomes of runs while a cluster is asked to take them, and settles what an interruption has left."""

from collections.abc import Sequence

from llmb.cli.context import Context, say
from llmb.clusters.base import UnclearError
from llmb.errors import describe
from llmb.runs.record import RunRecord
from llmb.submission.submit import Outcome, SubmitResult

_NAMED = 8  # runs that a line has room for


class Announcer:
    """Says of each run that it was taken, or why not; a reason that several share once."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def __call__(self, handed: SubmitResult) -> None:
        """One line for a run that was taken, the reason for one that was not."""
        run, error = handed.run, handed.error
        attempt = f"  attempt {run.attempt}" if run.attempt > 1 else ""
        if error is None:
            other = "" if run.scheduler_id else "  is being submitted by another process"
            say(f"  {run.id}  {run.name}{attempt}{other}")
            return
        is_unclear = isinstance(error, UnclearError)
        reason = describe(error)
        if is_unclear:
            reason += "\nnote: nothing is lost: llmb-run jobs reconcile finds out, and submits it if it was not taken"
        what = "may have been taken or not" if is_unclear else "was not taken"
        say(f"  {run.id}  {run.name}{attempt}  {what}{', likewise' if reason in self.told else ''}")
        if reason not in self.told:
            say(reason)
        self.told.add(reason)


def sum_up(outcome: Outcome, count: int) -> None:
    """What became of ``count`` jobs where not all were taken, and how the others go out after all."""
    refused = [one for one in outcome.refused if not isinstance(one.error, UnclearError)]
    if count > 1 and (outcome.refused or outcome.left):
        numbers = {
            "not taken": refused,
            "not known": [one for one in outcome.refused if one not in refused],
            "not tried": outcome.left,
        }
        others = [f", {len(some)} {what}" for what, some in numbers.items() if some]
        say(f"{len(outcome.submitted)} of {count} submitted{''.join(others)}")
    if ids := [one.run.id for one in refused if one.is_recorded]:
        named = " ".join(ids) if len(ids) <= _NAMED else "--failed"
        say(f"hint: once the cause is mended: llmb-run jobs retry {named}")
    if count > 1 and (outcome.left or len(ids) < len(refused)):
        say("hint: the same command with --resume submits the others")


def print_submitted(runs: Sequence[RunRecord], fmt: str) -> None:
    """The runs that were taken, for the program that called: as data; a table says nothing that was not said."""
    if fmt == "table":
        return
    from llmb.cli.output import print_rows
    from llmb.text.tables import Column

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
    """What Ctrl-C does in the middle of a submission."""
    say("interrupted: what is under way is finished first; Ctrl-C again ends at once")


def resubmit(context: Context, runs: Sequence[RunRecord]) -> int:
    """Submit runs that an interruption has left; how many of them were not taken. Raises KeyboardInterrupt."""
    from llmb.submission.reconcile import resubmit

    handed, interrupted = resubmit(
        context.need_cluster(), runs, on_result=Announcer(), on_settle=_tell_settle, on_interrupt=announce_interrupt
    )
    if interrupted:
        raise KeyboardInterrupt
    return sum(one.error is not None for one in handed)


def _tell_settle(seconds: float) -> None:
    lasts = f"{seconds:.0f} s or more" if seconds >= 1 else "a moment"
    say(f"waiting {lasts}: a submission that was cut off may still arrive")
