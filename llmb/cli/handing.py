# SPDX-License-Identifier: Apache-2.0
"""Says what becomes of runs while a cluster is asked to take them, and settles what an interruption has left."""

from __future__ import annotations

from collections.abc import Sequence

from llmb.cli.context import Context, say
from llmb.clusters.base import UnclearError
from llmb.errors import describe
from llmb.handover import Handed
from llmb.runs.record import RunRecord


def tell(handed: Handed) -> None:
    """One line for a run that was taken, the reason for one that was not."""
    run, error = handed.run, handed.error
    attempt = f"  attempt {run.attempt}" if run.attempt > 1 else ""
    if error is None:
        other = "" if run.scheduler_id else "  is being submitted by another process"
        say(f"  {run.id}  {run.name}{attempt}{other}")
        return
    is_unclear = isinstance(error, UnclearError)
    say(f"  {run.id}  {run.name}{attempt}  {'may have been taken or not' if is_unclear else 'was not taken'}")
    say(describe(error))
    if is_unclear:
        say("note: nothing is lost: llmb-run jobs reconcile finds out, and submits it if it was not taken")


def tell_interrupt() -> None:
    """What Ctrl-C does in the middle of a submission."""
    say("interrupted: what is under way is finished first; Ctrl-C again ends at once")


def resubmit(context: Context, runs: Sequence[RunRecord]) -> int:
    """Submit runs that an interruption has left; how many of them were not taken. Raises KeyboardInterrupt."""
    from llmb.reconcile import resubmit

    handed, interrupted = resubmit(
        context.need_cluster(), runs, on_handed=tell, on_settle=_tell_settle, on_interrupt=tell_interrupt
    )
    if interrupted:
        raise KeyboardInterrupt
    return sum(one.error is not None for one in handed)


def _tell_settle(seconds: float) -> None:
    say(f"waiting {seconds:.0f} s or more: a submission that was cut off may still arrive")
