# SPDX-License-Identifier: Apache-2.0
"""`jobs retry`: which runs can be retried and why they failed, then their next attempts."""

from __future__ import annotations

from collections.abc import Sequence

from llmb.cli.context import Context, say
from llmb.cli.handing import tell, tell_interrupt
from llmb.cli.reporting import results_of
from llmb.errors import LlmbError, PreflightError, UsageError
from llmb.results import FAILED, SUCCESS, Result
from llmb.retry import retry, with_limit
from llmb.runs import record, store
from llmb.runs.record import RunRecord
from llmb.state import TIMEOUT
from llmb.switches import parse_clock


def choose(context: Context, runs: Sequence[RunRecord], *, named: bool) -> list[RunRecord]:
    """The runs that have failed, each with its reason said. Raises UsageError for a ``named`` one that has not."""
    results = results_of(context, runs)
    wrong = [f"{result.run} {_not_failed(result)}" for result in results if result.status != FAILED]
    if named and wrong:
        hint = f"{'nothing was submitted; ' if len(runs) > 1 else ''}llmb-run results shows what has failed"
        raise UsageError(", ".join(wrong), hint=hint)
    chosen, cancelled = [], 0
    for old, result in zip(runs, results, strict=True):
        run = record.load(old.directory)
        if result.status != FAILED:
            continue
        if not named and store.was_cancelled(run):
            cancelled += 1
            continue
        say(f"{run.id} attempt {run.attempt}: {result.reason or 'failed'}")
        chosen.append(run)
    if cancelled:
        say(f"note: {cancelled} cancelled: name {'it' if cancelled == 1 else 'one'} to retry it")
    if not chosen:
        say("no run has failed")
    return chosen


def read_limit(text: str | None) -> int | None:
    """The seconds of ``--time-limit``. Raises UsageError."""
    try:
        return None if text is None else parse_clock(text)
    except ValueError as error:
        raise UsageError(f"--time-limit: {error}") from None


def run(
    context: Context, runs: Sequence[RunRecord], *, time_limit: int | None, force: bool
) -> tuple[list[RunRecord], int]:
    """Submit the next attempt of each, with another ``time_limit`` in seconds where one is given.

    Those taken, and the exit code. Raises PreflightError, KeyboardInterrupt.
    """
    cluster = context.need_cluster()
    next_ = runs if time_limit is None else [with_limit(one, time_limit) for one in runs]
    faults = [] if force or not runs else cluster.preflight([one.launch for one in next_])
    if faults:
        raise PreflightError(list(dict.fromkeys(faults)))
    if time_limit is None:
        _warn_of_limits(runs)
    handed, interrupted = retry(cluster, runs, time_limit=time_limit, on_handed=tell, on_interrupt=tell_interrupt)
    if interrupted:
        say(f"{len(handed)} of {len(runs)} retried")
        raise KeyboardInterrupt
    taken = [one.run for one in handed if one.error is None]
    return taken, LlmbError.exit_code if len(taken) < len(runs) else 0


def _warn_of_limits(runs: Sequence[RunRecord]) -> None:
    """Say which runs their time limit has ended: the next attempt has the same."""
    ended = [one.id for one in runs if (end := store.seen_state(one)) is not None and end.state == TIMEOUT]
    if ended:
        say(f"warning: the same time limit again for {', '.join(ended)}; another: jobs retry --time-limit HH:MM:SS")


def _not_failed(result: Result) -> str:
    return "has succeeded" if result.status == SUCCESS else f"has not ended ({result.reason})"
