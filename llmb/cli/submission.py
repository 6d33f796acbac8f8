# SPDX-License-Identifier: Apache-2.0
"""The one path of every submitting command: plan, say what is wrong, then show the jobs or submit and follow them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmb import __version__
from llmb.cli import following, options, preview
from llmb.cli.context import Context, say
from llmb.errors import Fault, InputFaults, LlmbError, UsageError, describe
from llmb.job import Job, JobList
from llmb.names import suggest
from llmb.plan import Extra, make_plan
from llmb.submit import Prepared, check, prepare, submit

Narrow = Callable[[Sequence[Job]], tuple[tuple[Job, ...], list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the submitting commands have in common."""

    dry_run: bool = False
    wait: bool = False
    keep_going: bool = False
    gpu_type: str | None = None
    fmt: str = "table"
    extra: Extra = field(default_factory=Extra)

    @classmethod
    def from_flags(cls, flags: dict[str, Any]) -> Options:
        """From the values of ``options.submit_options``. Raises UsageError for a malformed ``--env`` or ``--set``."""
        extra = Extra(
            env=options.parse_env(flags["env"]), params=options.parse_params(flags["params"]), force=flags["force"]
        )
        names = ("dry_run", "keep_going", "gpu_type", "fmt")
        return cls(wait=flags["wait_"], extra=extra, **{name: flags[name] for name in names})


def run(context: Context, listed: JobList, how: Options, narrow: Narrow | None = None) -> int:
    """Plan ``listed`` and show or submit the jobs; the exit code. Raises InputFaults with every fault of the list."""
    items, faults = _plan(context, listed, how, narrow)
    if faults and not how.keep_going:
        raise InputFaults(faults, hint=None if how.dry_run else "nothing was submitted")
    for fault in faults:
        say(describe(InputFaults([fault])))
    if not items:
        raise UsageError("no job is left to submit")
    if how.dry_run:
        preview.show(context, items, how.fmt)
        return 1 if faults else 0
    return _submit(context, items, how, failed=bool(faults))


def _plan(context: Context, listed: JobList, how: Options, narrow: Narrow | None) -> tuple[list[Prepared], list[Fault]]:
    config = context.config
    if how.gpu_type is not None:
        known = [config.gpu_type, *config.gpu_types]
        if how.gpu_type not in known:
            raise UsageError(f"this cluster has no GPU type '{how.gpu_type}'", hint=suggest(how.gpu_type, known))
    plan = make_plan(listed.requests, context.workloads, config, extra=how.extra, gpu_type=how.gpu_type)
    faults = [*listed.faults, *plan.faults]
    items, launch_faults = prepare(plan, context.plugins, config)
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


def _by_place(fault: Fault) -> tuple[str, int]:
    name, _, line = fault.place.rpartition(":")
    return (name, int(line)) if line.isdigit() else (fault.place, 0)


def _submit(context: Context, items: Sequence[Prepared], how: Options, *, failed: bool) -> int:
    cluster = context.need_cluster()
    if not how.extra.force:
        check(items, cluster)
    say(f"submitting {len(items)} job{'s' if len(items) > 1 else ''} to {context.config.cluster_name}")
    runs = submit(items, cluster, context.config, __version__, on_submitted=lambda run: say(f"  {run.id}  {run.name}"))
    if not how.wait:
        say("follow them: llmb-run jobs wait    results: llmb-run results")
        return LlmbError.exit_code if failed else 0
    return following.follow_to_results(context, runs, how.fmt) or (LlmbError.exit_code if failed else 0)
