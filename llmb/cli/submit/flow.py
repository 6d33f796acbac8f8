# SPDX-License-Identifier: Apache-2.0
"""The one path of every submitting command: plan, report faults, then show the jobs or submit and follow them.

`--resume`: of a list that was submitted before, submits what has not succeeded and is not under way.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from llmb import __version__
from llmb.cli import progress, reading
from llmb.cli.context import Context, say
from llmb.cli.results import judged, print_report, results_of
from llmb.cli.submit import announce, cost, preview
from llmb.cli.submit.announce import resubmit
from llmb.cli.submit.options import SubmitOptions, with_slurm_time
from llmb.config import CONFIG_FILE, ClusterConfig
from llmb.config.slurm import PMIX
from llmb.errors import Fault, InputFaults, LlmbError, PreflightError, UsageError, as_fault, describe
from llmb.planning.job_spec import JobOverrides
from llmb.planning.plan import Plan, make_plan
from llmb.results.description import configuration_of
from llmb.results.result import SUCCESS, UNKNOWN
from llmb.runs import store
from llmb.runs.job import Job, JobList
from llmb.runs.record import RunRecord
from llmb.runs.state import COMPLETED, NOT_SUBMITTED, JobState
from llmb.submission.follow import poll
from llmb.submission.prepare import Prepared, check, prepare
from llmb.submission.submit import Outcome, SubmitResult, submit
from llmb.system import console, locks
from llmb.system.process import ProcessId
from llmb.workload.gpus import GpuType, nearest_type
from llmb.workload.launch_variables import unread

NO_PMIX = (
    "srun has no MPI plugin 'pmix': the ranks start without --mpi, and NCCL sets up tensor-parallel overlap; "
    "the published runs had pmix"
)
_NOTHING = "nothing was submitted"
Narrow = Callable[[Sequence[Job]], tuple[tuple[Job, ...], list[str]]]


@contextmanager
def refusing(*, dry_run: bool) -> Iterator[None]:
    """Around everything before the first submission: a refusal in it also reports that nothing was submitted."""
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
    context: Context, listed: JobList, options: SubmitOptions, overrides: JobOverrides, narrow: Narrow | None = None
) -> int:
    """Plan ``listed`` and show or submit the jobs; the exit code. Raises InputFaults with every fault of the list."""
    with refusing(dry_run=options.dry_run):
        context.need_type()
        items, faults = _plan(context, listed, options, overrides, narrow)
        if faults and not options.keep_going:
            raise InputFaults(faults, hint=_others(len(items), dry_run=options.dry_run))
    for fault in faults:
        say(describe(InputFaults([fault])))
    if not items:
        raise UsageError("no valid job is left to submit", code="no-jobs-left")
    if not options.dry_run:
        return _submit(context, items, options, failed=bool(faults))
    if options.resume:
        items = list(rest_of(context, items, dry_run=True).items)
    preview.show(context, cost.within(context, items, options.budget), options.fmt)
    return 1 if faults else 0


def _others(count: int, *, dry_run: bool) -> str | None:
    """How to go on with the ``count`` valid jobs of a list with faults; None without any."""
    if not count:
        return None
    valid = "1 other job is valid" if count == 1 else f"{count} other jobs are valid"
    return f"{valid}: --keep-going {'shows' if dry_run else 'submits'} {'it' if count == 1 else 'them'}"


def _plan(
    context: Context, listed: JobList, options: SubmitOptions, overrides: JobOverrides, narrow: Narrow | None
) -> tuple[list[Prepared], list[Fault]]:
    config = context.config
    known = [config.gpu_type, *config.gpu_types]
    if options.gpu_type is not None and options.gpu_type not in known:
        meant = nearest_type(options.gpu_type, known)
        wrong = _unknown_gpu(options.gpu_type, known, meant, config.types.get(options.gpu_type))
        others = Plan()
        if meant is not None:
            others = make_plan(listed.requests, context.workloads, config, overrides=overrides, gpu_type=meant)
        raise InputFaults([wrong, *listed.faults, *others.faults])
    _warn_of_unused(config)
    settled = with_slurm_time(context, listed.requests, overrides)
    plan = make_plan(listed.requests, context.workloads, config, overrides=settled, gpu_type=options.gpu_type)
    if overrides.switches.sets_profile and plan.jobs and not any(job.profile for job in plan.jobs):
        message = "an option is for profiled jobs, but no job is profiled"
        raise UsageError(message, hint="add --profile", code="not-profiled", key="profile")
    # Ranks cannot start under PMIx on a Slurm whose srun does not have it.
    has_pmix = not config.traits.sbatch_options or PMIX not in getattr(context.cluster, "lacks", ())
    items, launch_faults = prepare(plan, context.plugins, config, context.slurm_args, has_pmix=has_pmix)
    if not has_pmix and items:
        console.warn_once(NO_PMIX)
    faults = sorted([*listed.faults, *plan.faults, *launch_faults], key=_by_place)
    for text in plan.warnings:
        say(f"warning: {text}")
    if narrow is None or (faults and not options.keep_going):
        return items, faults
    kept, unmatched = narrow([item.job for item in items])
    for text in unmatched:
        say(f"warning: {text}")
    chosen = {id(job) for job in kept}
    return [item for item in items if id(item.job) in chosen], faults


def _warn_of_unused(config: ClusterConfig) -> None:
    """Warn of variables of NVIDIA's launch scripts in the configuration, where they have no effect on a job."""
    own = {"environment": config.environment}
    own |= {f"workloads.config.{name}.environment": one.environment for name, one in config.workloads.config.items()}
    for key, environment in own.items():
        if unused := list(unread(environment, ())):
            say(f"warning: {key} of {CONFIG_FILE} has variables without effect here: {', '.join(unused)}")


def _unknown_gpu(name: str, known: Sequence[str], meant: str | None, kind: GpuType | None) -> Fault:
    """The fault of an unknown GPU type; the hint is the one that was meant, else the line that adds it."""
    own = "{}" if kind is not None and kind.like is None else f"{{like: {(kind and kind.like) or 'h100'}}}"
    there = ", ".join(dict.fromkeys(known))
    adding = f"it has {there}; in cluster_config.yaml, gpu_types: {{{name}: {own}}} adds this one"
    hint = adding if meant is None else f"did you mean '{meant}'?"
    message = f"this cluster has no GPU type '{name}'"
    return Fault(message=message, hint=hint, code="gpu-type-unknown", key="gpu_type", value=name)


def _by_place(fault: Fault) -> tuple[str, int]:
    name, _, line = fault.place.rpartition(":")
    return (name, int(line)) if line.isdigit() else (fault.place, 0)


def _submit(context: Context, items: Sequence[Prepared], options: SubmitOptions, *, failed: bool) -> int:
    before: Sequence[RunRecord] = ()
    under_way: Sequence[RunRecord] = ()
    with resume_lock(context) if options.resume else nullcontext():
        if options.resume:
            rest = rest_of(context, items, dry_run=False)
            items, before, under_way = rest.items, rest.done, rest.live
        outcome = _send(context, items, options)
    waits = options.wait and not outcome.left
    if not waits:
        announce.print_submitted(outcome.submitted, options.fmt)
    if outcome.interrupted:
        raise KeyboardInterrupt
    failed = failed or bool(outcome.refused)
    if not waits:
        if outcome.submitted:
            say("follow them: llmb-run jobs wait    results: llmb-run results")
        return LlmbError.exit_code if failed else 0
    followed, _ = progress.follow(context, [*under_way, *outcome.submitted], options.retries)
    results = results_of(context, [*before, *followed])
    context.runs()  # earlier ones show what is unusual about these
    code = print_report(judged(context, results), options.fmt, full_names=False)
    return code or (LlmbError.exit_code if failed else 0)


def _send(context: Context, items: Sequence[Prepared], options: SubmitOptions) -> Outcome:
    """Submit those within the budget, reporting each run and, where not all were submitted, the totals."""
    with refusing(dry_run=False):
        items = cost.within(context, items, options.budget).items
        if not items:  # all are done or under way
            return Outcome()
        cluster = context.need_cluster()
        if not (options.force or options.no_preflight):
            check(items, cluster)
    say(f"submitting {len(items)} job{'s' if len(items) > 1 else ''} to {context.config.cluster_name}")
    announcer = announce.Announcer(verbose=context.verbose)

    def done(result: SubmitResult) -> None:
        if result.error is None:
            reading.keep_reader(context, result.run)
        announcer(result)

    outcome = submit(
        items,
        cluster,
        context.config,
        __version__,
        keep_going=options.keep_going,
        on_result=done,
        on_interrupt=announce.announce_interrupt,
    )
    announce.sum_up(outcome, len(items))
    return outcome


_WAIT = 600.0  # seconds for another --resume, which may be about to submit the same jobs


def key_of(job: Job) -> Hashable:
    """Equal for two jobs of one configuration and one repeat."""
    return configuration_of(job).key, job.repeat, job.max_steps, job.switches


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The jobs to submit, and the runs of the others: those that succeeded, and those under way."""

    items: tuple[Prepared, ...]
    done: tuple[RunRecord, ...]
    live: tuple[RunRecord, ...]


def remaining(items: Sequence[Prepared], succeeded: Sequence[RunRecord], live: Sequence[RunRecord]) -> Remaining:
    """The jobs of ``items`` without a run. A run is for one job only, where the list has the same job several times."""
    unused = {"done": _by_key(succeeded), "live": _by_key(live)}
    used: dict[str, list[RunRecord]] = {"done": [], "live": []}
    left = []
    for item in items:
        kind = next((kind for kind in unused if unused[kind].get(key_of(item.job))), None)
        if kind is None:
            left.append(item)
        else:
            used[kind].append(unused[kind][key_of(item.job)].pop(0))
    return Remaining(items=tuple(left), done=tuple(used["done"]), live=tuple(used["live"]))


def _by_key(runs: Sequence[RunRecord]) -> dict[Hashable, list[RunRecord]]:
    found: dict[Hashable, list[RunRecord]] = {}
    for run in runs:
        found.setdefault(key_of(run.job), []).append(run)
    return found


def resume_lock(context: Context) -> AbstractContextManager[None]:
    """The lock between commands that resume; two at once would submit the same jobs, so the second waits."""

    def announce_wait(owner: ProcessId) -> None:
        say(f"waiting for process {owner.pid} on {owner.host}, which resumes a list")

    folder = store.runs_root(context.config) / ".locks"
    return locks.hold(folder, "resume", wait=_WAIT, on_wait=announce_wait)


def rest_of(context: Context, items: Sequence[Prepared], *, dry_run: bool) -> Remaining:
    """The jobs of ``items`` that remain on this install; prints how many do not.

    Unless ``dry_run``, first submits the runs of an interrupted submission.
    """
    wanted = {key_of(item.job) for item in items}
    runs = [run for run in context.runs() if run.origin is None and key_of(run.job) in wanted]
    states = poll(context.need_cluster(), runs) if runs else {}
    unsent = [run for run in runs if states[run.id].state == NOT_SUBMITTED]
    if unsent and not dry_run:
        say(f"submitting {len(unsent)} of an interrupted submission:")
        resubmit(context, unsent)
        states = poll(context.need_cluster(), runs)
    live = [run for run in runs if not states[run.id].is_end]
    found = remaining(items, _succeeded(context, runs, states), live)
    under_way = f", {len(found.live)} running or waiting" if found.live else ""
    say(f"{len(found.done)} of {len(items)} are done{under_way}")
    return found


def _succeeded(context: Context, runs: Sequence[RunRecord], states: dict[str, JobState]) -> list[RunRecord]:
    """The runs that succeeded; also those that completed and whose logs cannot be read any more."""
    ended = [run for run in runs if states[run.id].is_end]
    done = ((SUCCESS, None), (UNKNOWN, COMPLETED))
    results = zip(ended, results_of(context, ended), strict=True)
    return [run for run, one in results if (one.status, one.state if one.status == UNKNOWN else None) in done]
