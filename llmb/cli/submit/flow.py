# SPDX-License-Identifier: Apache-2.0
"""The one path of every submitting command: plan, report faults, then show or submit the jobs.

With `--resume`, a list that was submitted before loses the jobs that have succeeded, wait or run.
"""

import hashlib
import shlex
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from llmb import __version__
from llmb.cli.context import CliContext, say
from llmb.cli.estimates import estimates_of
from llmb.cli.submit import ab, announce, cost
from llmb.cli.submit.options import SubmitOptions, with_slurm_time
from llmb.cli.submit.overrides import overrides_of
from llmb.cli.usage import with_hints
from llmb.contract.cluster import Cluster
from llmb.contract.entry import JobList
from llmb.contract.formats import ParseSpec
from llmb.contract.gpus import GpuType, nearest_type
from llmb.contract.job import Job
from llmb.contract.launch_variable import Variables
from llmb.contract.record import RunRecord, Session
from llmb.contract.samples import Samples
from llmb.contract.sbatch import PMIX
from llmb.contract.schema import ClusterConfig
from llmb.contract.settings import Settings
from llmb.contract.state import COMPLETED, NOT_SUBMITTED, JobState
from llmb.core import console, locks
from llmb.core.names import listed
from llmb.core.process import ProcessId
from llmb.core.values import dataclass
from llmb.errors import (
    Fault,
    InputFaults,
    LlmbError,
    PreflightError,
    UsageError,
    as_fault,
    describe,
)
from llmb.measure.reader import keep_reader, reader_of
from llmb.plan.estimate import limit_warnings
from llmb.plan.launch_variables import unread
from llmb.plan.locate import CONFIG_FILE
from llmb.plan.plan import Plan, make_plan
from llmb.plugins.loaded import ResultRow
from llmb.run import sessions, store
from llmb.run.backlog import Backlog, OnResult, open_runs
from llmb.run.polling import last_seen, poll, try_poll
from llmb.run.prepare import Prepared, check, prepare
from llmb.run.sessions import SessionRuns
from llmb.run.submission import Sent, SubmitResult
from llmb.run.submit import submit

NO_PMIX = (
    "srun has no MPI plugin 'pmix': the ranks start without --mpi, and NCCL sets up tensor-parallel"
    " overlap; the published runs had pmix"
)
_NOTHING = "nothing was submitted"
Narrow = Callable[[Sequence[Job]], tuple[tuple[Job, ...], list[str]]]


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
            items, faults = _plan(context, listed, options, overrides, narrow, context.slurm_args)
        else:
            items, faults = _plan_pairs(context, listed, options, options.ab, narrow)
        if faults and not options.keep_going:
            raise InputFaults(faults, hint=_hint_at_valid(len(items), dry_run=options.dry_run))
    for fault in faults:
        error = with_hints(InputFaults([fault]), context.words, context.plugins.hint_for)
        say(describe(error))
    if not items:
        raise UsageError("no valid job is left to submit", code="no-jobs-left")
    jobs = [item.job for item in items]
    for text in limit_warnings(jobs, estimates_of(context, jobs)):
        say(f"warning: {text}")
    if not options.dry_run:
        return _submit(context, items, options, joblist, failed=bool(faults))
    session, earlier = session_for(context, items, options, joblist)
    if options.resume:
        items = list(rest_of(context, items, earlier).items)
    affordable, budget = cost.within(context, items, options.budget)
    from llmb.cli.submit import preview

    preview.show(context, affordable, budget, options.fmt, session)
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


def _plan_pairs(
    context: CliContext, listed: JobList, options: SubmitOptions, text: str, narrow: Narrow | None
) -> tuple[list[Prepared], list[Fault]]:
    """Plan the jobs of both sides of ``--ab``. Raises UsageError if they cannot be compared."""
    test = ab.read_test(text)
    sides: list[list[Prepared]] = []
    faults: dict[Fault, None] = {}
    for side in range(len(ab.SIDES)):
        side_options = test.options_of(side, options)
        slurm_args = test.slurm_args_of(side, context.slurm_args)
        overrides = overrides_of(
            side_options, context.parameters, context.frameworks, context.variables
        )
        items, side_faults = _plan(context, listed, side_options, overrides, narrow, slurm_args)
        sides.append(items)
        faults |= dict.fromkeys(side_faults)
    if faults:
        return [], list(faults)
    for items in sides:
        ab.check_nodes(test, items, context.config)
    return ab.in_pairs(test, sides), []


def _plan(
    context: CliContext,
    listed: JobList,
    options: SubmitOptions,
    overrides: Settings,
    narrow: Narrow | None,
    slurm_args: Mapping[str, str | bool],
) -> tuple[list[Prepared], list[Fault]]:
    config = context.config
    gpu_types = [config.gpu_type, *config.gpu_types]
    if options.gpu_type is not None and options.gpu_type not in gpu_types:
        nearest = nearest_type(options.gpu_type, gpu_types)
        fault = _unknown_gpu(
            options.gpu_type, gpu_types, nearest, config.types.get(options.gpu_type)
        )
        nearest_plan = Plan()
        if nearest is not None:
            nearest_plan = make_plan(
                listed.entries,
                context.workloads,
                config,
                overrides=overrides,
                gpu_type=nearest,
                force=options.force,
            )
        raise InputFaults([fault, *listed.faults, *nearest_plan.faults])
    _warn_of_unused(config, context.variables)
    settled = with_slurm_time(context, listed.entries, overrides)
    plan = make_plan(
        listed.entries,
        context.workloads,
        config,
        overrides=settled,
        gpu_type=options.gpu_type,
        force=options.force,
    )
    if overrides.sets_profile and plan.jobs and not any(job.profile for job in plan.jobs):
        raise UsageError(
            "an option is for profiled jobs, but no job is profiled",
            hint="add --profile",
            code="not-profiled",
            key="profile",
        )
    # Ranks cannot start under PMIx on a Slurm whose srun does not have it.
    has_pmix = not config.traits.sbatch_options or PMIX not in getattr(context.cluster, "lacks", ())
    items, launch_faults = prepare(
        plan, context.plugins, config, slurm_args, has_pmix=has_pmix, kept_results=_kept_rows
    )
    if not has_pmix and items:
        console.warn_once(NO_PMIX)
    faults = sorted([*listed.faults, *plan.faults, *launch_faults], key=_by_place)
    for text in plan.warnings:
        say(f"warning: {text}")
    for text in plan.notes:
        say(f"note: {text}")
    if narrow is None or (faults and not options.keep_going):
        return items, faults
    selected, unmatched = narrow([item.job for item in items])
    for text in unmatched:
        say(f"warning: {text}")
    chosen = {id(job) for job in selected}
    return [item for item in items if id(item.job) in chosen], faults


def _kept_rows(runs: Sequence[RunRecord]) -> list[ResultRow]:
    from llmb.cli.reading import kept_rows  # slow to import, and only names of nodes need it

    return kept_rows(runs)


def _warn_of_unused(config: ClusterConfig, variables: Variables) -> None:
    """Warn of variables of other launchers in the configuration, which have no effect."""
    environments = {"environment": config.environment}
    environments |= {
        f"workloads.config.{name}.environment": workload.environment
        for name, workload in config.workloads.config.items()
    }
    for key, environment in environments.items():
        if unused := list(unread(environment, variables)):
            say(
                f"warning: {key} of {CONFIG_FILE} has variables without effect here:"
                f" {', '.join(unused)}"
            )


def _unknown_gpu(
    name: str, gpu_types: Sequence[str], nearest: str | None, kind: GpuType | None
) -> Fault:
    """The fault of an unknown GPU type, with the ``nearest`` one or the line that adds it."""
    definition = (
        "{}"
        if kind is not None and kind.like is None
        else f"{{like: {(kind and kind.like) or 'h100'}}}"
    )
    names = ", ".join(dict.fromkeys(gpu_types))
    adding = (
        f"it has {names}; in cluster_config.yaml, gpu_types: {{{name}: {definition}}} adds this one"
    )
    hint = adding if nearest is None else f"did you mean '{nearest}'?"
    message = f"this cluster has no GPU type '{name}'"
    return Fault(message=message, hint=hint, code="gpu-type-unknown", key="gpu_type", value=name)


def _by_place(fault: Fault) -> tuple[str, int]:
    name, _, line = fault.place.rpartition(":")
    return (name, int(line)) if line.isdigit() else (fault.place, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The jobs to submit, and the runs of jobs that succeeded, are under way, or are unsent.

    An unsent run is recorded: a full queue turned it away, or its submission was cut off.
    """

    items: tuple[Prepared, ...]
    done: tuple[RunRecord, ...] = ()
    live: tuple[RunRecord, ...] = ()
    unsent: tuple[RunRecord, ...] = ()


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
        if not options.resume:
            with refusing(dry_run=False):
                _note_under_way(context, items)
        limit = options.max_in_queue or context.config.max_in_queue
        if options.resume:
            remainder = rest_of(context, items, earlier)
        backlog = _backlog_of(context, remainder, options, session, limit)
        count = backlog.count
        results = backlog.refill(backlog.under_way, announce.Announcer(verbose=context.verbose))
    submitted = [result.run for result in results if result.error is None]
    waits = options.wait and not backlog.is_stopped
    announce.sum_up(results, backlog, count, waits=waits)
    if not waits:
        announce.print_submitted(submitted, options.fmt)
    if backlog.interrupted:
        raise KeyboardInterrupt
    if not waits:
        if submitted:
            say("follow them: llmb-run jobs wait    results: llmb-run results")
        failed = failed or bool(backlog.refused) or backlog.full is not None
        return LlmbError.exit_code if failed else 0
    from llmb.cli.submit.waiting import follow_and_report

    code = follow_and_report(
        context, [*remainder.live, *submitted], remainder.done, options, backlog
    )
    failed = failed or bool(backlog.refused or backlog.count)
    return code or (LlmbError.exit_code if failed else 0)


def _note_under_way(context: CliContext, items: Sequence[Prepared]) -> None:
    """Print a note if runs of equal jobs have not ended: the command may be a repeated one."""
    names = dict.fromkeys((item.job.workload, item.job.experiment_name) for item in items)
    recorded = (run for name in names for run in store.runs_of(context.config, *name))
    runs = [run for run in recorded if run.origin is None and not last_seen(run).is_final]
    if not runs:
        return
    states, _ = try_poll(context.need_cluster(), runs)
    under_way = remaining(items, (), [run for run in runs if not states[run.id].is_over]).live
    if not under_way:
        return
    named = {sessions.session_of(run).id: sessions.session_of(run) for run in under_way}
    titles = listed([*map(sessions.in_words, named.values())], _NAMED_SESSIONS)
    verb = "is" if len(under_way) == 1 else "are"
    none_is_new = len(under_way) == len(items)
    say(
        f"warning: {len(under_way)} of {len(items)} jobs {verb} waiting or running already, in"
        f" session {titles}, and {verb} submitted once more;"
        f" {'with --resume, none is' if none_is_new else 'to submit only the others, add --resume'}"
    )


_NAMED_SESSIONS = 4  # in a line


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


_WAIT = 600.0  # seconds for another --resume, which may be about to submit the same jobs


def key_of(job: Job) -> Hashable:
    """Equal for two jobs of one configuration and one repeat."""
    return job.settings.key, job.repeat, job.max_steps, job.switches


def _planned_key(planned: Prepared | RunRecord) -> Hashable:
    """Return a key that a planned job and its run share.

    The two sides of a pair may have the same job: they may differ in an option of sbatch.
    """
    return key_of(planned.job), planned.pair


def _key_on_nodes(planned: Prepared | RunRecord) -> Hashable:
    """Return a key that also has the nodes that were asked for, if any were."""
    options = {} if planned.launch is None else planned.launch.slurm_args
    return _planned_key(planned), options.get("nodelist")


def remaining(
    items: Sequence[Prepared],
    succeeded: Sequence[RunRecord],
    live: Sequence[RunRecord],
    unsent: Sequence[RunRecord] = (),
) -> Remaining:
    """Find the jobs of ``items`` without a run. Each run is for one job of the list only.

    Of equal jobs on several lists of nodes, each gets the run on its own. A job that is now sent to
    other nodes than before has its run nevertheless.
    """
    runs = {"done": succeeded, "live": live, "unsent": unsent}
    found: dict[str, list[RunRecord]] = {kind: [] for kind in runs}
    jobless = [*items]
    for key in (_key_on_nodes, _planned_key):
        used = {run.id for matches in found.values() for run in matches}
        unused = {
            kind: _by_key([run for run in members if run.id not in used], key)
            for kind, members in runs.items()
        }
        jobless, tried = [], jobless
        for item in tried:
            kind = next((kind for kind in unused if unused[kind].get(key(item))), None)
            if kind is None:
                jobless.append(item)
            else:
                found[kind].append(unused[kind][key(item)].pop(0))
    matched = {kind: tuple(matches) for kind, matches in found.items()}
    return Remaining(items=tuple(jobless), **matched)


def _by_key(
    runs: Sequence[RunRecord], key: Callable[[Prepared | RunRecord], Hashable]
) -> dict[Hashable, list[RunRecord]]:
    by_key: dict[Hashable, list[RunRecord]] = {}
    for run in runs:
        by_key.setdefault(key(run), []).append(run)
    return by_key


def resume_lock(context: CliContext) -> AbstractContextManager[None]:
    """The lock between commands that resume: two at once would submit the same jobs."""

    def announce_wait(owner: ProcessId) -> None:
        say(f"waiting for process {owner.pid} on {owner.host}, which resumes a list")

    folder = context.config.runs_root / ".locks"
    return locks.hold(folder, "resume", wait=_WAIT, on_wait=announce_wait)


NEW_SESSION = "<new>"  # in the place of an id that only a submission knows


def session_for(
    context: CliContext, items: Sequence[Prepared], options: SubmitOptions, joblist: Path | None
) -> tuple[Session, tuple[RunRecord, ...]]:
    """Return the session of these jobs and its earlier runs.

    It is a new one without an id, unless ``--session`` or ``--resume`` continues one, which is
    printed. Raises UsageError for an invalid name.
    """
    content = joblist.read_bytes() if joblist is not None and joblist.is_file() else None
    new = Session(
        id=NEW_SESSION,
        name=options.session,
        created=time.time(),
        list_sha256=None if content is None else hashlib.sha256(content).hexdigest(),
        list_path=None if joblist is None else str(joblist.absolute()),
        command=shlex.join(["llmb-run", *context.words]),  # has no secrets: --env refuses them
    )
    continued = None
    if options.session is not None or options.resume:
        groups = sessions.group(run for run in context.runs() if run.origin is None)
        keys = {_planned_key(item) for item in items}
        if options.session is not None:
            continued = _continued(options.session, groups, resumes=options.resume)
        else:
            continued = sessions.resumable(groups, new, lambda run: _planned_key(run) in keys)
    if continued is None:
        if options.session is not None:
            sessions.check_name(options.session)
        return new, ()
    session, name = continued.session, sessions.in_words(continued.session)
    if options.resume:
        say(f"resuming session {name}: {session.command or 'of an earlier release'}")
    else:
        say(f"note: session {name} exists: these jobs are added to it")
    if session.list_path == new.list_path and session.list_sha256 != new.list_sha256:
        say(f"note: {joblist} has changed since this session began")
    return session, continued.runs


def _continued(name: str, groups: Sequence[SessionRuns], *, resumes: bool) -> SessionRuns | None:
    """Return the session that these jobs are added to, or None for a new one.

    A name names a new session every night. An id, and ``--resume``, mean the one that exists.
    """
    named = sessions.find(name, groups)
    is_new = (
        named is not None
        and not resumes
        and name == named.session.name
        and sessions.is_over(named, time.time())
    )
    if named is not None and is_new:
        say(f"note: session {sessions.in_words(named.session)} is over: this is a new one")
    return None if is_new else named


def rest_of(
    context: CliContext,
    items: Sequence[Prepared],
    earlier: Sequence[RunRecord],
) -> Remaining:
    """Find the jobs of ``items`` that remain to be submitted here. Print the others' number.

    Only the ``earlier`` runs of the session count.
    """
    keys = {_planned_key(item) for item in items}
    runs = [run for run in earlier if run.origin is None and _planned_key(run) in keys]
    states = poll(context.need_cluster(), runs) if runs else {}
    unsent = [run for run in runs if states[run.id].state == NOT_SUBMITTED]
    live = [run for run in runs if not states[run.id].is_over]
    remainder = remaining(items, _succeeded(context, runs, states), live, unsent)
    under_way = f", {len(remainder.live)} running or waiting" if remainder.live else ""
    recorded = f", {len(remainder.unsent)} recorded and not submitted" if remainder.unsent else ""
    say(f"{len(remainder.done)} of {len(items)} are done{under_way}{recorded}")
    return remainder


def _succeeded(
    context: CliContext, runs: Sequence[RunRecord], states: dict[str, JobState]
) -> list[RunRecord]:
    """The runs that succeeded, and completed ones whose logs cannot be read any more."""
    from llmb.cli.results import results_of, states_of
    from llmb.measure.result import SUCCESS, UNKNOWN

    ended = [run for run in runs if states[run.id].is_end]
    results = results_of(context, ended, states_of(context, ended))
    return [
        run
        for run, result in zip(ended, results, strict=True)
        if result.status == SUCCESS or (result.status, result.state) == (UNKNOWN, COMPLETED)
    ]
