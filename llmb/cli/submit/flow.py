# SPDX-License-Identifier: Apache-2.0
"""The one path of every submitting command: plan, say what is wrong, then show the jobs or submit and follow them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llmb import __version__
from llmb.cli.context import Context, say
from llmb.cli.submit import announce, options
from llmb.errors import Fault, InputFaults, LlmbError, PreflightError, UsageError, collected, describe
from llmb.planning.plan import JobOverrides, Plan, make_plan
from llmb.runs.job import Job, JobList
from llmb.runs.record import RunRecord
from llmb.submission.prepare import Prepared, check, prepare
from llmb.submission.submit import Outcome, submit
from llmb.workload.gpus import known_types, nearest_type
from llmb.workload.switches import Switches

NO_PMIX = (
    "srun has no MPI plugin 'pmix': the ranks start without --mpi, and tensor-parallel overlap is set up by NCCL; "
    "the published runs had pmix"
)
Narrow = Callable[[Sequence[Job]], tuple[tuple[Job, ...], list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the submitting commands have in common."""

    dry_run: bool = False
    wait: bool = False
    retries: int = 0
    resume: bool = False
    keep_going: bool = False
    gpu_type: str | None = None
    no_preflight: bool = False
    fmt: str = "table"
    extra: JobOverrides = field(default_factory=JobOverrides)

    @classmethod
    def from_flags(cls, flags: dict[str, Any]) -> Options:
        """From the values of ``options.submit_options``. Raises UsageError."""
        faults: list[Fault] = []
        params, words = dict[str, int](), dict[str, str]()
        with collected(faults):
            params, words = options.parse_set(flags["params"])
            params = options.params_of(flags, params)
        with collected(faults):
            env = options.parse_env(flags["env"])
        with collected(faults):
            switches = options.switches_of(flags, words)
        if flags["retries"] and not flags["wait_"]:
            hint = "add --wait, or later: llmb-run jobs retry --failed"
            faults.append(Fault(message="--retries works while waiting", hint=hint))
        if faults:
            raise InputFaults(faults)
        extra = JobOverrides(env=env, params=params, switches=Switches(**switches), force=flags["force"])
        names = ("dry_run", "retries", "resume", "keep_going", "gpu_type", "no_preflight", "fmt")
        return cls(wait=flags["wait_"], extra=extra, **{name: flags[name] for name in names})


@contextmanager
def refusing(*, dry_run: bool) -> Iterator[None]:
    """Around all that comes before the first job goes out: a refusal there also says that nothing was submitted."""
    try:
        yield
    except (UsageError, PreflightError) as error:
        if dry_run:
            raise
        if isinstance(error, UsageError) and not isinstance(error, InputFaults):
            faults = [Fault(message=error.message, hint=error.hint)]
            raise InputFaults(faults, hint="nothing was submitted") from error
        error.hint = "; ".join(filter(None, ("nothing was submitted", error.hint)))
        raise


def run(context: Context, listed: JobList, how: Options, narrow: Narrow | None = None) -> int:
    """Plan ``listed`` and show or submit the jobs; the exit code. Raises InputFaults with every fault of the list."""
    with refusing(dry_run=how.dry_run):
        items, faults = _plan(context, listed, how, narrow)
        if faults and not how.keep_going:
            raise InputFaults(faults)
    for fault in faults:
        say(describe(InputFaults([fault])))
    if not items:
        raise UsageError("no job is left to submit")
    if not how.dry_run:
        return _submit(context, items, how, failed=bool(faults))
    if how.resume:
        from llmb.cli.submit import resume

        items = list(resume.rest_of(context, items, dry_run=True).items)
    from llmb.cli.submit import preview

    preview.show(context, items, how.fmt)
    return 1 if faults else 0


def _plan(context: Context, listed: JobList, how: Options, narrow: Narrow | None) -> tuple[list[Prepared], list[Fault]]:
    config = context.config
    known = [config.gpu_type, *config.gpu_types]
    if how.gpu_type is not None and how.gpu_type not in known:
        meant = nearest_type(how.gpu_type, known)
        wrong = Fault(
            message=f"this cluster has no GPU type '{how.gpu_type}'", hint=_gpu_hint(how.gpu_type, known, meant)
        )
        others = (
            make_plan(listed.requests, context.workloads, config, extra=how.extra, gpu_type=meant) if meant else Plan()
        )
        raise InputFaults([wrong, *listed.faults, *others.faults])
    extra = options.settled(context, listed.requests, how.extra)
    plan = make_plan(listed.requests, context.workloads, config, extra=extra, gpu_type=how.gpu_type)
    if how.extra.switches.sets_profile and plan.jobs and not any(job.profile for job in plan.jobs):
        raise UsageError("no job is profiled, and an option says how to profile", hint="add --profile")
    faults = [*listed.faults, *plan.faults]
    has_pmix = _has_pmix(context)
    items, launch_faults = prepare(plan, context.plugins, config, context.slurm_args, has_pmix=has_pmix)
    if not has_pmix and items:
        context.warn(NO_PMIX)
    faults = sorted([*faults, *launch_faults], key=_by_place)
    for text in plan.warnings:
        say(f"warning: {text}")
    if narrow is None or (faults and not how.keep_going):
        return items, faults
    kept, idle = narrow([item.job for item in items])
    for text in idle:
        say(f"warning: {text}")
    chosen = {id(job) for job in kept}
    return [item for item in items if id(item.job) in chosen], faults


def _has_pmix(context: Context) -> bool:
    """Whether ranks could start under PMIx: False for a Slurm whose srun does not have it."""
    if context.config.cluster_type != "slurm":
        return True
    from llmb.config.slurm import PMIX

    return PMIX not in getattr(context.cluster, "lacks", ())


def _gpu_hint(name: str, known: Sequence[str], meant: str | None) -> str:
    """The type that was meant, else those that there are and the line that adds this one."""
    if meant is not None:
        return f"did you mean '{meant}'?"
    own = "{}" if name in known_types() else "{like: h100}"
    there = ", ".join(dict.fromkeys(known))
    return f"it has {there}; in cluster_config.yaml, gpu_types: {{{name}: {own}}} adds this one"


def _by_place(fault: Fault) -> tuple[str, int]:
    name, _, line = fault.place.rpartition(":")
    return (name, int(line)) if line.isdigit() else (fault.place, 0)


def _submit(context: Context, items: Sequence[Prepared], how: Options, *, failed: bool) -> int:
    before: Sequence[RunRecord] = ()
    under_way: Sequence[RunRecord] = ()
    if how.resume:
        from llmb.cli.submit import resume

        with resume.alone(context):
            rest = resume.rest_of(context, items, dry_run=False)
            before, under_way = rest.done, rest.live
            outcome = _send(context, rest.items, how) if rest.items else Outcome()
    else:
        outcome = _send(context, items, how)
    waits = how.wait and not outcome.left
    if not waits:
        announce.print_submitted(outcome.submitted, how.fmt)
    if outcome.interrupted:
        raise KeyboardInterrupt
    failed = failed or bool(outcome.refused)
    if not waits:
        if outcome.submitted:
            say("follow them: llmb-run jobs wait    results: llmb-run results")
        return LlmbError.exit_code if failed else 0
    from llmb.cli import progress

    runs = [*under_way, *outcome.submitted]
    code = progress.follow_to_results(context, runs, how.fmt, before=before, retries=how.retries)
    return code or (LlmbError.exit_code if failed else 0)


def _send(context: Context, items: Sequence[Prepared], how: Options) -> Outcome:
    """Submit all, saying what becomes of each, and of all together where not all were taken."""
    with refusing(dry_run=False):
        cluster = context.need_cluster()
        if not (how.extra.force or how.no_preflight):
            check(items, cluster)
    say(f"submitting {len(items)} job{'s' if len(items) > 1 else ''} to {context.config.cluster_name}")
    outcome = submit(
        items,
        cluster,
        context.config,
        __version__,
        keep_going=how.keep_going,
        on_result=announce.Announcer(),
        on_interrupt=announce.announce_interrupt,
    )
    announce.sum_up(outcome, len(items))
    return outcome
