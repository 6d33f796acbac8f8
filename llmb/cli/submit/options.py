# SPDX-License-Identifier: Apache-2.0
"""The options of every submitting command as a dataclass that click fills."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import click

from llmb.cli import options as common
from llmb.cli.context import Context, pass_context, say
from llmb.text.times import clock
from llmb.workload import switches as sw

if TYPE_CHECKING:
    from llmb.planning.job_spec import JobOverrides
    from llmb.runs.job import JobRequest

T = TypeVar("T")

_KEYS = " ".join([*sw.PARAMS, *sw.CHOICES])
# What follows for an option from the type of its field.
_OF_TYPE: dict[Any, dict[str, Any]] = {
    bool: {"is_flag": True},
    bool | None: {"default": None},
    int: {"type": click.IntRange(min=1), "metavar": "N"},
    int | None: {"type": click.IntRange(min=1), "metavar": "N"},
    tuple[str, ...]: {"multiple": True},
}


class Option:
    """The click option of a field: its help, and what does not follow from the field's name and type."""

    def __init__(self, text: str, *flags: str, **how: Any) -> None:
        self.text, self.flags, self.how = text, flags, how

    def add(self, name: str, kind: Any, command: Callable[..., int]) -> Callable[..., int]:
        """``command`` with the option of the field ``name`` of the type ``kind``."""
        flags = self.flags or (f"--{name.replace('_', '-')}",)
        return click.option(name, *flags, help=self.text, **{**_OF_TYPE.get(kind, {}), **self.how})(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """The options of every submitting command, as given; a field's name is the option's, and its switch's."""

    dry_run: Annotated[bool, Option("Show the jobs and submit nothing.", "-d", "--dry-run")]
    wait: Annotated[bool, Option("Follow the jobs and show their results.")]
    retries: Annotated[int, common.retries_option]
    resume: Annotated[bool, Option("Skip jobs that have succeeded, wait or run.")]
    budget: Annotated[str | None, Option("Only jobs that fit, in list order: 5000gpuh.", metavar="GPUH")]
    env: Annotated[tuple[str, ...], Option("Set a variable in each job.", metavar="K=V")]
    params: Annotated[tuple[str, ...], Option(f"Set {_KEYS}, or the workload's own.", "--set", metavar="KEY=VALUE")]
    max_steps: Annotated[int | None, Option("Steps of each run.")]
    gbs: Annotated[int | None, Option("Global batch in samples.")]
    time_limit: Annotated[str | None, Option("Time limit of each job.", metavar="HH:MM:SS")]
    gpus_per_node: Annotated[int | None, Option("GPUs that a job uses on each node.")]
    strong_scaling: Annotated[bool, Option("Keep the global batch the same at every scale.")]
    profile: Annotated[bool, Option("Profile each job (steps: see llmb-run docs jobs).", "-p", "--profile")]
    profile_start: Annotated[int | None, Option("First profiled step.", type=click.IntRange(min=0))]
    profile_stop: Annotated[int | None, Option("Last profiled step; the run ends there.")]
    profile_ranks: Annotated[str | None, Option("Profiled ranks: 0-7 (default), 0,8 or all.", metavar="RANKS")]
    gpu_metrics: Annotated[bool, Option("Sample GPU metrics in the profile.")]
    nccl_trace: Annotated[bool, Option("Log NCCL calls (5 steps, 15 minutes).")]
    save_checkpoint: Annotated[bool, Option("Save a checkpoint after the last step.")]
    load_checkpoint: Annotated[str | None, Option("Load the checkpoint in DIR, then run one step.", metavar="DIR")]
    vboost: Annotated[bool | None, Option("Raise the GPUs' vboost first (Slurm).", "--vboost/--no-vboost")]
    image: Annotated[str | None, Option("Another image: a reference or a .sqsh file.", metavar="IMAGE")]
    mounts: Annotated[tuple[str, ...], Option("Mount A at B in the container.", "--mount", metavar="A:B")]
    container_writable: Annotated[
        bool | None, Option("Let ranks write to the image (pyxis).", "--container-writable/--container-readonly")
    ]
    force: Annotated[bool, Option("Allow untested scales; skip pre-submission checks.")]
    keep_going: Annotated[bool, Option("Submit the valid jobs despite other faults.")]
    framework: Annotated[str | None, Option("nemo or bridge (default: see llmb-run docs jobs).", metavar="NAME")]
    release: Annotated[str | None, Option("Image release of Megatron-Bridge.", metavar="RELEASE")]
    proxy: Annotated[bool, Option("Run the proxy of each size: fewer layers.")]
    gpu_type: Annotated[str | None, Option("GPU type, on a cluster with several.", metavar="TYPE")]
    no_preflight: Annotated[bool, Option("Skip the pre-submission checks.")]
    fmt: Annotated[str, common.format_option]


def with_options(cls: type[T]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Decorate ``command(context, options: cls)`` with the click options of the fields of ``cls``, its own first.

    Each field's annotation has an Option, or a decorator of click's, as its metadata.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @pass_context
        @wraps(command)
        def filled(context: Context, /, **values: Any) -> int:
            return command(context, cls(**values))

        hints = get_type_hints(cls, include_extras=True)
        names = dict.fromkeys(name for owner in cls.__mro__ for name in inspect.get_annotations(owner))
        call: Callable[..., int] = common.install_option(common.slurm_options(common.verbose_option(filled)))
        for name in reversed([*names]):
            kind, (own,) = hints[name].__origin__, hints[name].__metadata__
            call = own.add(name, kind, call) if isinstance(own, Option) else own(call)
        return call

    return decorate


def with_slurm_time(context: Context, requests: Sequence["JobRequest"], overrides: "JobOverrides") -> "JobOverrides":
    """``overrides`` with the time limit of ``--slurm-arg time=``; prints which other limits it overrides."""
    given = context.slurm_args.get("time")
    limits = [common.slurm_arg_in_words("time", given)] if given is not None else []
    limits += [f"--time-limit {option}"] if (option := overrides.switches.time_limit) is not None else []
    limits += ["the job list's time_limit"] if any(one.switches.time_limit is not None for one in requests) else []
    own = context.config.slurm is not None and context.config.slurm.time_limit is not None
    limits += ["slurm.args.time of cluster_config.yaml"] if own else []
    if len(limits) > 1:
        say(f"note: {limits[0]} overrides {' and '.join(limits[1:])}")
    limit = seconds_of(given)
    switches = replace(overrides.switches, time_limit=clock(limit)) if limit else overrides.switches
    return replace(overrides, switches=switches)


def seconds_of(given: str | bool | None) -> int | None:
    """The seconds of ``--slurm-arg time=``; None for a word such as UNLIMITED, and where the option is removed."""
    from llmb.config.slurm import seconds

    return seconds(given) or None if isinstance(given, str) else None
