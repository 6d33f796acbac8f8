# SPDX-License-Identifier: Apache-2.0
"""From the entries of a list and the options to jobs that can be submitted, and every fault."""

from collections.abc import Callable, Mapping, Sequence

from llmb.cli.context import CliContext, say
from llmb.cli.submit import ab
from llmb.cli.submit.options import SubmitOptions, with_slurm_time
from llmb.cli.submit.overrides import overrides_of
from llmb.contract.entry import JobList
from llmb.contract.gpus import GpuType, nearest_type
from llmb.contract.job import Job
from llmb.contract.launch_variable import Variables
from llmb.contract.record import RunRecord
from llmb.contract.sbatch import PMIX
from llmb.contract.schema import ClusterConfig
from llmb.contract.settings import Settings
from llmb.core import console
from llmb.errors import Fault, InputFaults, UsageError
from llmb.plan.launch_variables import unread
from llmb.plan.locate import CONFIG_FILE
from llmb.plan.plan import make_plan
from llmb.plugins.loaded import ResultRow
from llmb.run.prepare import Prepared, prepare

NO_PMIX = (
    "srun has no MPI plugin 'pmix': the ranks start without --mpi, and NCCL sets up tensor-parallel"
    " overlap; the published runs had pmix"
)
Narrow = Callable[[Sequence[Job]], tuple[tuple[Job, ...], list[str]]]


def plan_pairs(
    context: CliContext, listed: JobList, options: SubmitOptions, text: str, narrow: Narrow | None
) -> tuple[list[Prepared], list[Fault]]:
    """Plan the jobs of both sides of ``--ab``. Raises UsageError if they cannot be compared."""
    test = ab.read_test(text)
    sides: list[list[Prepared]] = []
    faults: dict[Fault, None] = {}
    for side in range(len(ab.SIDES)):
        side_options = test.options_of(side, options)
        slurm_args = test.slurm_args_of(side, context.slurm_args)
        overrides = overrides_of(side_options, context)
        items, side_faults = plan_list(context, listed, side_options, overrides, narrow, slurm_args)
        sides.append(items)
        faults |= dict.fromkeys(side_faults)
    if faults:
        return [], list(faults)
    for items in sides:
        ab.check_nodes(test, items, context.config)
    return ab.in_pairs(test, sides), []


def plan_list(
    context: CliContext,
    listed: JobList,
    options: SubmitOptions,
    overrides: Settings,
    narrow: Narrow | None,
    slurm_args: Mapping[str, str | bool],
) -> tuple[list[Prepared], list[Fault]]:
    """Return the jobs of a list that can be submitted, and every fault. Prints notes and warnings.

    ``narrow`` chooses some of the valid jobs, and names what matches none. Raises UsageError.
    """
    config = context.config
    _check_gpu_type(context, listed, options, overrides)
    _warn_of_unused(config, context.variables)
    plan = make_plan(
        listed.entries,
        context.workloads,
        config,
        overrides=with_slurm_time(context, listed.entries, overrides),
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


def _check_gpu_type(
    context: CliContext, listed: JobList, options: SubmitOptions, overrides: Settings
) -> None:
    """Raise InputFaults for a GPU type that the cluster does not have, as ``--gpu-type h10``.

    The faults of the list on the nearest type are among them.
    """
    config, requested = context.config, options.gpu_type
    gpu_types = [config.gpu_type, *config.gpu_types]
    if requested is None or requested in gpu_types:
        return
    nearest = nearest_type(requested, gpu_types)
    fault = _unknown_gpu(requested, gpu_types, nearest, config.types.get(requested))
    if nearest is None:
        raise InputFaults([fault, *listed.faults])
    plan = make_plan(
        listed.entries,
        context.workloads,
        config,
        overrides=overrides,
        gpu_type=nearest,
        force=options.force,
    )
    raise InputFaults([fault, *listed.faults, *plan.faults])


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
