# SPDX-License-Identifier: Apache-2.0
"""The one path of every submitting command: plan, report faults, then show or submit the jobs.

With `--resume`, a list that was submitted before loses the jobs that have succeeded, wait or run.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from llmb import __version__
from llmb.cli.context import CliContext, say
from llmb.cli.estimates import estimates_of, past_of
from llmb.cli.submit import announce, cost
from llmb.cli.submit.options import SubmitOptions
from llmb.cli.submit.plan_list import Narrow, plan_list, plan_pairs
from llmb.cli.submit.session import (
    NEW_SESSION,
    rest_of,
    resume_lock,
    session_for,
    warn_of_jobs_under_way,
)
from llmb.cli.usage import with_hints
from llmb.contract.cluster import Cluster
from llmb.contract.entry import JobList
from llmb.contract.formats import ParseSpec
from llmb.contract.record import RunRecord, Session
from llmb.contract.samples import Samples
from llmb.contract.settings import Settings
from llmb.errors import (
    InputFaults,
    LlmbError,
    PreflightError,
    UsageError,
    as_fault,
    describe,
)
from llmb.measure.reader import keep_reader, reader_of
from llmb.plan.estimate import limit_warnings
from llmb.run import sessions, store
from llmb.run.backlog import Backlog, OnResult, open_runs
from llmb.run.prepare import Prepared, check
from llmb.run.resume import Remaining
from llmb.run.submission import Sent, SubmitResult
from llmb.run.submit import submit

_NOTHING = "nothing was submitted"


@contextmanager
def refusing(*, dry_run: bool) -> Iterator[None]:
    """Add to each refusal before the first submission that nothing was submitted."""
    try:
        yield
    except (UsageError, PreflightError) as error:
        if dry_run:
            raise
        if isinstance(error, UsageError) and not isinstance(error, InputFaults):
            raise InputFaults([as_fault(error)], hint=_NOTHING) from error
        error.hint = "; ".join(filter(None, (_NOTHING, error.hint)))
        raise


def run(
    context: CliContext,
    listed: JobList,
    options: SubmitOptions,
    overrides: Settings,
    narrow: Narrow | None = None,
    joblist: Path | None = None,
) -> int:
    """Plan ``listed``, of the file ``joblist``, show or submit the jobs and return the exit code.

    Raises InputFaults with every fault of the list.
    """
    with refusing(dry_run=options.dry_run):
        context.need_type()
        if options.ab is None:
            items, faults = plan_list(
                context, listed, options, overrides, narrow, context.slurm_args
            )
        else:
            items, faults = plan_pairs(context, listed, options, options.ab, narrow)
        if faults and not options.keep_going:
            raise InputFaults(faults, hint=_hint_at_valid(len(items), dry_run=options.dry_run))
    for fault in faults:
        say(describe(with_hints(InputFaults([fault]), context.words, context.plugins.hint_for)))
    if not items:
        raise UsageError("no valid job is left to submit", code="no-jobs-left")
    jobs = [item.job for item in items]
    past = past_of(context, jobs)
    for text in limit_warnings(jobs, estimates_of(context, jobs, past)):
        say(f"warning: {text}")
    if not options.dry_run:
        return _submit(context, items, options, joblist, failed=bool(faults))
    session, earlier = session_for(context, items, options, joblist)
    if options.resume:
        items = list(rest_of(context, items, earlier).items)
    affordable, budget = cost.within(context, items, options.budget, past)
    from llmb.cli.submit import preview

    preview.show(context, affordable, budget, options.fmt, session, past)
    return 1 if faults else 0


def _hint_at_valid(count: int, *, dry_run: bool) -> str | None:
    """The hint with the ``count`` valid jobs of a list with faults, or None without any."""
    if not count:
        return None
    valid = "1 other job is valid" if count == 1 else f"{count} other jobs are valid"
    return (
        f"{valid}: --keep-going {'shows' if dry_run else 'submits'}"
        f" {'it' if count == 1 else 'them'}"
    )


def _submit(
    context: CliContext,
    items: Sequence[Prepared],
    options: SubmitOptions,
    joblist: Path | None,
    *,
    failed: bool,
) -> int:
    remainder = Remaining(items=tuple(items))
    with resume_lock(context) if options.resume else nullcontext():
        # Under the lock, so that the runs of another --resume, which has just ended, are seen.
        if options.resume:
            names = ((item.job.workload, item.job.experiment_name) for item in items)
            store.show_anew(context.config, names)
        session, earlier = session_for(context, items, options, joblist)
        limit = options.max_in_queue or context.config.max_in_queue
        if options.resume:
            remainder = rest_of(context, items, earlier)
        backlog = _backlog_of(context, remainder, options, session, limit)
        if not options.resume:
            with refusing(dry_run=False):
                warn_of_jobs_under_way(context, items)
        count = backlog.count
        results = backlog.refill(backlog.under_way, announce.Announcer(verbose=context.verbose))
    submitted = [result.run for result in results if result.error is None]
    waits = options.wait and not backlog.is_stopped
    if not (waits or results or backlog.turned_away):
        backlog.command = shlex.join(["llmb-run", *context.words])  # nothing is there to resume
    announce.sum_up(results, backlog, count, waits=waits)
    if not waits:
        announce.print_submitted(submitted, options.fmt)
    if backlog.interrupted:
        raise KeyboardInterrupt
    if not waits:
        if submitted and not context.is_called:
            say("follow them: llmb-run jobs wait    results: llmb-run results")
        failed = failed or bool(backlog.refused) or backlog.full is not None
        return LlmbError.exit_code if failed else 0
    from llmb.cli.submit.waiting import follow_and_report

    code = follow_and_report(
        context, [*remainder.live, *submitted], remainder.done, options, backlog
    )
    failed = failed or bool(backlog.refused or backlog.count)
    return code or (LlmbError.exit_code if failed else 0)


def _backlog_of(
    context: CliContext,
    remainder: Remaining,
    options: SubmitOptions,
    session: Session,
    limit: int | None,
) -> Backlog[Prepared]:
    """Return the jobs to submit, within the budget. Raises PreflightError for what prevents them.

    ``limit``: the most of this user's jobs in the queue at a time.
    """
    items: Sequence[Prepared] = remainder.items
    with refusing(dry_run=False):
        items, _ = cost.within(context, items, options.budget)
        cluster = context.need_cluster()
        if items and not (options.force or options.no_preflight):
            check(items, cluster)
    words = context.words if options.resume else (*context.words, "--resume")
    under_way = {run.id for run in remainder.live}
    in_queue = open_runs(cluster, context.runs()) if limit is not None else []
    return Backlog(
        cluster=cluster,
        resend=announce.resender(cluster),
        send=_sender(context, cluster, session, len(items), keep_going=options.keep_going),
        limit=limit,
        items=tuple(items),
        turned_away=remainder.unsent,
        others=[run for run in in_queue if run.id not in under_way],
        under_way=len(under_way),
        command=shlex.join(["llmb-run", *words]),
    )


def _sender(
    context: CliContext, cluster: Cluster, session: Session, count: int, *, keep_going: bool
) -> Callable[[Sequence[Prepared], OnResult], Sent[Prepared]]:
    """Return the function that submits jobs of ``session``, which the first of them begins."""
    current = session
    is_announced = False

    def send(items: Sequence[Prepared], on_result: OnResult) -> Sent[Prepared]:
        nonlocal current, is_announced
        if current.id == NEW_SESSION:
            current = sessions.create(context.config, current)
        if not is_announced:
            part = f"{len(items)} of " if len(items) < count else ""
            say(
                f"submitting {part}{count} job{'s' if count > 1 else ''} to"
                f" {context.config.cluster_name}, session {sessions.in_words(current)}"
            )
            is_announced = True

        def keep_and_report(result: SubmitResult) -> None:
            if result.error is None:
                _keep_reader(context, result.run)
            on_result(result)

        return submit(
            items,
            cluster,
            context.config,
            __version__,
            session=current,
            keep_going=keep_going,
            on_result=keep_and_report,
            on_interrupt=announce.announce_interrupt,
        )

    return send


def _keep_reader(context: CliContext, run: RunRecord) -> None:
    """Keep how the log of a new run is read.

    A plugin that cannot say yet is asked when there is a log, and only the metrics are kept.
    """
    workload = context.workloads.get(run.job.workload)
    if workload is None:
        return
    try:
        reader = context.log_reader(workload, run)
    except LlmbError:
        spec = ParseSpec(samples=Samples())
        reader = reader_of(workload, run.job.model_size, spec, context.plugins.failures)
    keep_reader(run, reader)
