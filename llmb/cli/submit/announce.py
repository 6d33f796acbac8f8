# SPDX-License-Identifier: Apache-2.0
"""Reports each run while a cluster submits it, and submits the runs of an interrupted submission."""

from collections.abc import Sequence

from llmb.cli.context import Context, say
from llmb.cli.output import print_rows
from llmb.clusters.base import UnclearError
from llmb.errors import describe
from llmb.runs.record import RunRecord
from llmb.submission.submit import Outcome, SubmitResult
from llmb.text.tables import Column

_NAMED = 8  # runs that fit on a line


class Announcer:
    """Reports each run that was submitted or refused; a reason that several share is printed once.

    ``verbose``: with the scheduler's id, the script and the log.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        self.reasons: set[str] = set()
        self.verbose = verbose

    def __call__(self, result: SubmitResult) -> None:
        """Print a line for the run, and the reason of a refusal."""
        run, error = result.run, result.error
        attempt = f"  attempt {run.attempt}" if run.attempt > 1 else ""
        if error is None:
            other = "" if run.scheduler_id else "  another process is submitting it"
            say(f"  {run.id}  {run.name}{attempt}{other}")
            if self.verbose:
                say(f"      job {run.scheduler_id or 'unknown'}  script {run.script}  log {run.log}")
            return
        is_unclear = isinstance(error, UnclearError)
        reason = describe(error)
        if is_unclear:
            reason += "\nnote: nothing is lost: llmb-run jobs reconcile finds the job, or submits it if it was refused"
        what = "may have been submitted or not" if is_unclear else "was not submitted"
        say(f"  {run.id}  {run.name}{attempt}  {what}{', for the same reason' if reason in self.reasons else ''}")
        if reason not in self.reasons:
            say(reason)
        self.reasons.add(reason)


def sum_up(outcome: Outcome, count: int) -> None:
    """Print the totals where not all of ``count`` jobs were submitted, and how to submit the others."""
    refused = [one for one in outcome.refused if not isinstance(one.error, UnclearError)]
    if count > 1 and (outcome.refused or outcome.left):
        numbers = {
            "refused": refused,
            "unknown": [one for one in outcome.refused if one not in refused],
            "not tried": outcome.left,
        }
        others = [f", {len(some)} {what}" for what, some in numbers.items() if some]
        say(f"{len(outcome.submitted)} of {count} submitted{''.join(others)}")
    if ids := [one.run.id for one in refused if one.is_recorded]:
        named = " ".join(ids) if len(ids) <= _NAMED else "--failed"
        say(f"hint: after fixing the cause: llmb-run jobs retry {named}")
    if count > 1 and (outcome.left or len(ids) < len(refused)):
        say("hint: the same command with --resume submits the others")


def print_submitted(runs: Sequence[RunRecord], fmt: str) -> None:
    """Print the submitted runs as data; with format table nothing, as each run was reported already."""
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


def resubmit(context: Context, runs: Sequence[RunRecord]) -> int:
    """Submit the runs of an interrupted submission; returns how many were refused. Raises KeyboardInterrupt."""
    from llmb.submission.reconcile import resubmit

    results, interrupted = resubmit(
        context.need_cluster(), runs, on_result=Announcer(), on_settle=_announce_wait, on_interrupt=announce_interrupt
    )
    if interrupted:
        raise KeyboardInterrupt
    return sum(one.error is not None for one in results)


def _announce_wait(seconds: float) -> None:
    lasts = f"{seconds:.0f} s or more" if seconds >= 1 else "a moment"
    say(f"waiting {lasts}: an interrupted submission may still arrive")
