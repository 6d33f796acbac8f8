# SPDX-License-Identifier: Apache-2.0
"""The options of every submitting command as a dataclass that click fills."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_type_hints

import click

from llmb.cli import options as common
from llmb.cli.context import CliContext, pass_context, say
from llmb.contract import switches as sw
from llmb.core.times import clock
from llmb.core.values import dataclass

if TYPE_CHECKING:
    from llmb.contract.entry import JobEntry
    from llmb.contract.settings import Settings

T = TypeVar("T")

_WITH_OPTION = ("gbs", "max_steps")  # keys of --set that are options too
_KEYS = " ".join(key for key in [*sw.PARAMS, *sw.CHOICES] if key not in _WITH_OPTION)
# What follows for an option from the type of its field.
_OF_TYPE: dict[Any, dict[str, Any]] = {
    bool: {"is_flag": True},
    bool | None: {"default": None},
    int: {"type": click.IntRange(min=1), "metavar": "N"},
    int | None: {"type": click.IntRange(min=1), "metavar": "N"},
    tuple[str, ...]: {"multiple": True},
}


class OptionField:
    """The click option of a field: help, flags, and settings beyond those of the field's type."""

    def __init__(self, text: str, *flags: str, **settings: Any) -> None:
        self.text, self.flags, self.how = text, flags, settings

    def add(self, name: str, kind: Any, command: Callable[..., int]) -> Callable[..., int]:
        """``command`` with the option of the field ``name`` of the type ``kind``."""
        flags = self.flags or (f"--{name.replace('_', '-')}",)
        return click.option(name, *flags, help=self.text, **{**_OF_TYPE.get(kind, {}), **self.how})(
            command
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """The options of every submitting command. A field is named as its option and its switch."""

    dry_run: Annotated[bool, OptionField("Show the jobs and submit nothing.", "-d", "--dry-run")]
    wait: Annotated[bool, OptionField("Follow the jobs and show their results.")]
    retries: Annotated[int, common.retries_option]
    resume: Annotated[bool, OptionField("Skip jobs that have succeeded, wait or run.")]
    session: Annotated[
        str | None, OptionField("Name the session, or add to the one of this name.", metavar="NAME")
    ]
    max_in_queue: Annotated[int | None, common.max_in_queue_option]
    ab: Annotated[
        str | None,
        OptionField(
            "Run each job in pairs that differ in SETTING, on the same nodes.",
            metavar="SETTING=A,B",
        ),
    ]
    budget: Annotated[
        str | None, OptionField("Only jobs that fit, in list order: 5000gpuh.", metavar="GPUH")
    ]
    env: Annotated[tuple[str, ...], OptionField("Set a variable in each job.", metavar="K=V")]
    params: Annotated[
        tuple[str, ...],
        OptionField(f"Set {_KEYS}, or the workload's own.", "--set", metavar="KEY=VALUE"),
    ]
    max_steps: Annotated[int | None, OptionField("Steps of each run.")]
    gbs: Annotated[int | None, OptionField("Global batch in samples.")]
    time_limit: Annotated[str | None, OptionField("Time limit of each job.", metavar="HH:MM:SS")]
    gpus_per_node: Annotated[int | None, OptionField("GPUs that a job uses on each node.")]
    strong_scaling: Annotated[bool, OptionField("Keep the global batch the same at every scale.")]
    profile: Annotated[
        bool, OptionField("Profile each job (steps: see llmb-run docs jobs).", "-p", "--profile")
    ]
    profile_start: Annotated[
        int | None, OptionField("First profiled step.", type=click.IntRange(min=0))
    ]
    profile_stop: Annotated[int | None, OptionField("Last profiled step; the run ends there.")]
    profile_ranks: Annotated[
        str | None, OptionField("Profiled ranks: 0-7 (default), 0,8 or all.", metavar="RANKS")
    ]
    gpu_metrics: Annotated[bool, OptionField("Sample GPU metrics in the profile.")]
    nccl_trace: Annotated[bool, OptionField("Log NCCL calls (5 steps, 15 minutes).")]
    stragglers: Annotated[bool, OptionField("Let the training program print slow ranks.")]
    save_checkpoint: Annotated[bool, OptionField("Save a checkpoint after the last step.")]
    load_checkpoint: Annotated[
        str | None, OptionField("Load the checkpoint in DIR, then run one step.", metavar="DIR")
    ]
    vboost: Annotated[
        bool | None, OptionField("Raise the GPUs' vboost first (Slurm).", "--vboost/--no-vboost")
    ]
    telemetry: Annotated[
        bool | None,
        OptionField("Sample the GPUs during the run (default: on).", "--telemetry/--no-telemetry"),
    ]
    image: Annotated[
        str | None, OptionField("Another image: a reference or a .sqsh file.", metavar="IMAGE")
    ]
    mounts: Annotated[
        tuple[str, ...], OptionField("Mount A at B in the container.", "--mount", metavar="A:B")
    ]
    container_writable: Annotated[
        bool | None,
        OptionField(
            "Let ranks write to the image (pyxis).", "--container-writable/--container-readonly"
        ),
    ]
    force: Annotated[bool, OptionField("Allow untested scales; skip pre-submission checks.")]
    keep_going: Annotated[bool, OptionField("Submit the valid jobs despite other faults.")]
    framework: Annotated[
        str | None, OptionField("nemo or bridge (default: see llmb-run docs jobs).", metavar="NAME")
    ]
    release: Annotated[
        str | None, OptionField("Image release of Megatron-Bridge.", metavar="RELEASE")
    ]
    proxy: Annotated[bool, OptionField("Run the proxy of each size: fewer layers.")]
    gpu_type: Annotated[
        str | None, OptionField("GPU type, on a cluster with several.", metavar="TYPE")
    ]
    no_preflight: Annotated[bool, OptionField("Skip the pre-submission checks.", hidden=True)]
    fmt: Annotated[str, common.format_option]


class SubmitCommand(common.GroupedCommand):
    """A submitting command. Its ``--help`` has what a first night needs."""

    sections: ClassVar[Mapping[str, Sequence[str]]] = {
        "Which jobs": (
            *("workload", "workloads", "size", "dtypes", "scales", "max_scale", "min_scale"),
            *("exact_scales", "repeats", "resume", "budget", "ab", "proxy", "gpu_type", "force"),
            "keep_going",
        ),
        "Training": (
            *("max_steps", "gbs", "params", "env", "framework", "release", "image", "mounts"),
            *("container_writable", "strong_scaling", "save_checkpoint", "load_checkpoint"),
            "vboost",
        ),
        "Profiling": (
            *("profile", "profile_start", "profile_stop", "profile_ranks", "gpu_metrics"),
            *("nccl_trace", "stragglers", "telemetry"),
        ),
        "Scheduler": (
            *("partition", "account", "time_limit", "qos", "reservation", "nodelist", "exclude"),
            *("nice", "segment", "gpus_per_node", "slurm_arg", "max_in_queue", "retries"),
        ),
        "Output": ("dry_run", "wait", "session", "install", "verbose", "fmt"),
    }
    first: ClassVar[Collection[str]] = frozenset(
        [
            *("workload", "workloads", "size", "dtypes", "scales", "max_scale", "min_scale"),
            *("repeats", "resume", "budget", "max_steps", "params", "env", "image", "profile"),
            *("partition", "account", "time_limit", "dry_run", "wait", "install"),
        ]
    )


def with_options(cls: type[T]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Decorate ``command(context, options: cls)`` with the click options of the fields of ``cls``.

    Each field's annotation has an OptionField, or a decorator of click's, as its metadata. Fields
    of ``cls`` come before inherited ones.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @pass_context
        @wraps(command)
        def filled(context: CliContext, /, **values: Any) -> int:
            return command(context, cls(**values))

        hints = get_type_hints(cls, include_extras=True)
        names = dict.fromkeys(
            name for owner in cls.__mro__ for name in inspect.get_annotations(owner)
        )
        call: Callable[..., int] = common.install_option(
            common.slurm_options(common.verbose_option(filled))
        )
        for name in reversed([*names]):
            kind, (option,) = hints[name].__origin__, hints[name].__metadata__
            call = option.add(name, kind, call) if isinstance(option, OptionField) else option(call)
        return call

    return decorate


def with_slurm_time(
    context: CliContext, entries: Sequence["JobEntry"], overrides: "Settings"
) -> "Settings":
    """Set the time limit of ``--slurm-arg time=`` and print which other limits it overrides."""
    sbatch_limit = context.slurm_args.get("time")
    limits = [common.slurm_arg_in_words("time", sbatch_limit)] if sbatch_limit is not None else []
    limits += [f"--time-limit {option}"] if (option := overrides.time_limit) is not None else []
    limits += (
        ["the job list's time_limit"]
        if any(entry.settings.time_limit is not None for entry in entries)
        else []
    )
    in_config = context.config.slurm is not None and context.config.slurm.time_limit is not None
    limits += ["slurm.args.time of cluster_config.yaml"] if in_config else []
    if len(limits) > 1:
        say(f"note: {limits[0]} overrides {' and '.join(limits[1:])}")
    limit = seconds_of(sbatch_limit)
    return replace(overrides, time_limit=clock(limit)) if limit else overrides


def seconds_of(sbatch_time: str | bool | None) -> int | None:
    """Return the seconds of ``--slurm-arg time=``, or None if it is removed or UNLIMITED."""
    from llmb.contract.sbatch import seconds

    return seconds(sbatch_time) or None if isinstance(sbatch_time, str) else None
