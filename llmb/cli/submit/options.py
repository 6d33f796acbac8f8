# SPDX-License-Identifier: Apache-2.0
"""The options of every submitting command as a dataclass that click fills, and how their text becomes values."""

import inspect
import json
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import click

from llmb.cli import options as common
from llmb.cli.context import Context, pass_context, say
from llmb.errors import Fault, InputFaults, KeyFaultError, collected
from llmb.system import files
from llmb.text.names import suggest
from llmb.text.times import clock
from llmb.workload import switches as sw

if TYPE_CHECKING:
    from llmb.planning.plan import JobOverrides
    from llmb.runs.job import JobRequest

T = TypeVar("T")

_WHOLE = re.compile(r"\+?0*([1-9]\d*)\.?0*", re.ASCII)  # a whole number from 1, written in another way
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
    resume: Annotated[bool, Option("Skip jobs that succeeded here or are under way.")]
    budget: Annotated[str | None, Option("Only jobs that fit, in list order: 5000gpuh.", metavar="GPUH")]
    env: Annotated[tuple[str, ...], Option("Set a variable in each job.", metavar="K=V")]
    params: Annotated[tuple[str, ...], Option(f"Set {_KEYS}, or the workload's own.", "--set", metavar="KEY=VALUE")]
    max_steps: Annotated[int | None, Option("Steps of each run.")]
    gbs: Annotated[int | None, Option("Global batch in samples.")]
    time_limit: Annotated[str | None, Option("Time limit of each job.", metavar="HH:MM:SS")]
    gpus_per_node: Annotated[int | None, Option("GPUs that a job uses on each node.")]
    strong_scaling: Annotated[bool, Option("Keep the global batch the same at every scale.")]
    profile: Annotated[bool, Option("Profile the release's steps (llmb-run docs jobs).", "-p", "--profile")]
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
    framework: Annotated[str | None, Option("nemo or bridge (default: llmb-run docs jobs).", metavar="NAME")]
    release: Annotated[str | None, Option("Image release of Megatron-Bridge.", metavar="RELEASE")]
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
        call: Callable[..., int] = common.install_option(common.slurm_arg_option(filled))
        for name in reversed([*names]):
            kind, (own,) = hints[name].__origin__, hints[name].__metadata__
            call = own.add(name, kind, call) if isinstance(own, Option) else own(call)
        return call

    return decorate


def overrides_of(given: SubmitOptions, parameters: Collection[str]) -> "JobOverrides":
    """What the options set for every job; ``parameters``: names that workloads declare.

    Raises InputFaults with every fault.
    """
    from llmb.planning.framework import check_framework
    from llmb.planning.plan import JobOverrides

    faults: list[Fault] = []
    dotted = _dotted(given.params, faults)
    params, words, own = _parse_set([item for item in given.params if not _names_path(item)], parameters, faults)
    env = _parse_env(given.env, faults)
    for name in ("max_steps", "gbs"):
        option = getattr(given, name)
        if option is not None and params.setdefault(name, option) != option:
            message = f"--{name.replace('_', '-')} {option} and --set {name}={params[name]} differ"
            fault = Fault(message=message, hint="give one of them", code="option-conflict", key=name, value=option)
            faults.append(fault)
    if given.framework is not None:
        with collected(faults):
            check_framework(given.framework)
    switches = words | _switches_of(given, faults)
    if given.retries and not given.wait:
        hint = "add --wait, or later: llmb-run jobs retry --failed"
        faults.append(Fault(message="--retries requires --wait", hint=hint, code="retries-without-wait"))
    if faults:
        raise InputFaults(faults)
    return JobOverrides(
        env=env,
        params=params,
        parameters=own,
        framework=given.framework,
        release=given.release,
        dotted=dotted,
        switches=sw.Switches(**switches),
        force=given.force,
    )


def _switches_of(given: SubmitOptions, faults: list[Fault]) -> dict[str, Any]:
    """The switches that the options set, by name; the first fault goes to ``faults``."""
    own = {field.name for field in fields(given)}
    found: dict[str, Any] = {name: getattr(given, name) for name in sw.NAMES if name in own}
    positive = ("strong_scaling", "gpu_metrics", "nccl_trace", "save_checkpoint")
    found = {
        name: value for name, value in found.items() if value not in (None, "", ()) and (value or name not in positive)
    }
    readers: dict[str, Callable[[Any], Any]] = {
        "image": sw.absolute_image,
        "time_limit": lambda text: text if sw.parse_clock(text) else None,
        "profile_ranks": lambda text: text if sw.rank_ranges(text) else None,
        "mounts": lambda items: tuple(map(sw.parse_mount, items)),
        "load_checkpoint": lambda text: str(files.expand(text).absolute()),
    }
    for name, read in readers.items():
        try:
            if name in found:
                found[name] = read(found[name])
        except ValueError as error:
            flag = "--mount" if name == "mounts" else f"--{name.replace('_', '-')}"
            hint = f"correct {flag}, or omit it"
            faults.append(Fault(message=f"{flag}: {error}", hint=hint, code="option-invalid", key=name))
            break
    return found


def _pairs(text: Sequence[str], flag: str, faults: list[Fault]) -> dict[str, str]:
    """The pairs ``KEY=VALUE`` by their keys; anything else goes to ``faults``."""
    pairs = {}
    for item in text:
        name, equals, value = item.partition("=")
        if equals and name.strip():
            pairs[name.strip()] = value
        else:
            message = f"{flag} '{item}' does not have the form KEY=VALUE"
            faults.append(Fault(message=message, hint=f"{flag} NAME=value", code="pair-invalid", key=flag, value=item))
    return pairs


def _names_path(item: str) -> bool:
    return sw.is_dotted(item.partition("=")[0].strip())


def _dotted(text: Sequence[str], faults: list[Fault]) -> dict[str, str | float | bool | None]:
    """The settings ``--set optimizer.lr=1e-4`` of the framework: numbers, true, false, null, or text."""
    found: dict[str, str | float | bool | None] = {}
    for name, value in _pairs([item for item in text if _names_path(item)], "--set", faults).items():
        found[name] = value
        with suppress(ValueError):
            read = json.loads(value)
            found[name] = value if isinstance(read, (list, dict)) else read
    return found


def _parse_env(text: Sequence[str], faults: list[Fault]) -> dict[str, str]:
    """The variables of ``--env K=V``; those that a job may not set go to ``faults``."""
    from llmb.workload.variables import REPLACEMENTS, check_effects, check_name, check_values

    env = _pairs(text, "--env", faults)
    # A variable of NVIDIA's scripts has one fault: what replaces it.
    checks: list[Callable[[], None]] = [partial(check_name, name) for name in env if name not in REPLACEMENTS]
    checks += [partial(check_values, env), partial(check_effects, env, of_list=False)]
    for check in checks:
        try:
            check()
        except KeyFaultError as error:
            faults.append(Fault(place="--env", message=str(error), hint=error.hint, code="variable-refused", key="env"))
    return env


def _parse_set(
    text: Sequence[str], parameters: Collection[str], faults: list[Fault]
) -> tuple[dict[str, int], dict[str, str], dict[str, str]]:
    """The numbers and the words of ``--set KEY=VALUE``, and the values of the workload's own ``parameters``.

    Unknown keys and invalid values go to ``faults``. Which parameters and values a workload has is checked later.
    """
    params, words, own = dict[str, int](), dict[str, str](), dict[str, str]()
    for name, value in _pairs(text, "--set", faults).items():
        if name in sw.CHOICES and value in sw.CHOICES[name]:
            words[name] = value
        elif name in sw.PARAMS and value.isdecimal() and int(value) >= 1:
            params[name] = int(value)
        elif name in parameters:
            own[name] = value
        elif name in sw.CHOICES:
            message = f"--set {name}={value}: must be {' or '.join(sw.CHOICES[name])}"
            hint = f"--set {name}={sw.CHOICES[name][-1]}"
            faults.append(Fault(message=message, hint=hint, code="param-invalid", key=name, value=value))
        elif name in sw.PARAMS:
            message, whole = f"--set {name}={value}: must be a whole number from 1", _WHOLE.fullmatch(value.strip())
            hint = f"--set {name}={whole[1]}" if whole else "omit it for the workload's value"
            faults.append(Fault(message=message, hint=hint, code="param-invalid", key=name, value=value))
        else:
            message, hint = f"--set has no parameter '{name}'", suggest(name, (*sw.PARAMS, *sw.CHOICES, *parameters))
            faults.append(Fault(message=message, hint=hint, code="param-unknown", key=name, value=value))
    return params, words, own


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
