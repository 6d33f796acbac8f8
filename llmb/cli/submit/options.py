# SPDX-License-Identifier: Apache-2.0
"""The options of every submitting command, and how their text becomes values."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import click

from llmb.cli import options
from llmb.cli.context import Context, say
from llmb.cli.options import slurm_arg_in_words
from llmb.clusters.bashscript import clock
from llmb.config.slurm import seconds
from llmb.errors import Fault, InputFaults, UsageError
from llmb.planning.plan import JobOverrides
from llmb.runs.job import JobRequest
from llmb.system import files
from llmb.workload.switches import CHOICES, PARAMS

F = TypeVar("F", bound=Callable[..., Any])

# Of options that take whole numbers, those that are parameters as well.
_PARAMS = ("max_steps", "gbs")
_COUNT = click.IntRange(min=1)
_WRITABLE = "Whether ranks may write into the image (pyxis)."
_PROFILE = "Profile the steps that the release did (docs/jobs.md): Nsight Systems; sizes tiny: torch's profiler."


def switch_options(command: F) -> F:
    """What every submitting command takes to run something else than the published configuration."""
    for option in reversed(
        (
            click.option("--max-steps", type=_COUNT, metavar="N", help="Steps of a run; as --set max_steps=N."),
            click.option("--gbs", type=_COUNT, metavar="N", help="Global batch in samples; as --set gbs=N."),
            click.option("--time-limit", metavar="HH:MM:SS", help="Time limit of each job."),
            click.option("--gpus-per-node", type=_COUNT, metavar="N", help="GPUs that a job uses on each node."),
            click.option("--strong-scaling", is_flag=True, help="Keep the global batch constant over scales."),
            click.option("-p", "--profile", is_flag=True, help=_PROFILE),
            click.option("--profile-start", type=click.IntRange(min=0), metavar="N", help="First step profiled."),
            click.option("--profile-stop", type=_COUNT, metavar="N", help="Last step profiled; the run ends there."),
            click.option("--profile-ranks", metavar="RANKS", help="Ranks profiled: 0-7 (the default), 0,8 or all."),
            click.option("--gpu-metrics", is_flag=True, help="Sample the GPUs' metrics in the profile."),
            click.option("--nccl-trace", is_flag=True, help="Log each NCCL call (5 steps, 15 minutes)."),
            click.option("--save-checkpoint", is_flag=True, help="Save a checkpoint after the last step."),
            click.option("--load-checkpoint", metavar="DIR", help="Load the checkpoint in DIR, then run one step."),
            click.option("--vboost/--no-vboost", default=None, help="Raise the GPUs' vboost first (on Slurm)."),
            click.option("--image", metavar="IMAGE", help="Another image: a reference, or the path of a .sqsh."),
            click.option("--mount", "mounts", multiple=True, metavar="A:B", help="Mount A at B in the container."),
            click.option("--container-writable/--container-readonly", default=None, help=_WRITABLE),
        )
    ):
        command = option(command)
    return command


def switches_of(flags: dict[str, Any], words: dict[str, str]) -> dict[str, Any]:
    """The switches that ``flags`` and the words of ``--set`` give, by name. Raises UsageError that names the option."""
    from llmb.workload.switches import absolute_image, parse_clock, parse_mount, rank_ranges

    found: dict[str, Any] = dict(words)
    plain = ("profile_start", "profile_stop", "gpus_per_node", "vboost", "container_writable")
    found |= {name: flags[name] for name in plain if flags[name] not in (None, "")}
    yes_or_no = ("strong_scaling", "gpu_metrics", "nccl_trace", "save_checkpoint")
    found |= {name: True for name in yes_or_no if flags[name]}
    if flags["image"]:
        found["image"] = _read(absolute_image, flags["image"], "--image")
    if flags["time_limit"]:
        found["time_limit"] = _read(parse_clock, flags["time_limit"], "--time-limit")
    if flags["profile_ranks"]:
        _read(rank_ranges, flags["profile_ranks"], "--profile-ranks")
        found["profile_ranks"] = flags["profile_ranks"]
    if flags["mounts"]:
        found["mounts"] = tuple(_read(parse_mount, item, "--mount") for item in flags["mounts"])
    if flags["load_checkpoint"]:
        found["load_checkpoint"] = str(files.expand(flags["load_checkpoint"]).absolute())
    return found


def params_of(flags: dict[str, Any], params: dict[str, int]) -> dict[str, int]:
    """``params`` of ``--set`` with those of options of their own. Raises UsageError where the two differ."""
    found = dict(params)
    for name in _PARAMS:
        if flags[name] is None:
            continue
        if found.get(name, flags[name]) != flags[name]:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} {flags[name]} and --set {name}={found[name]} differ", hint="give one of them")
        found[name] = flags[name]
    return found


def split_set(pairs: dict[str, str], faults: list[Fault]) -> tuple[dict[str, str], dict[str, str]]:
    """The pairs of ``--set``: those that are numbers, and those that are words. A wrong word goes to the ``faults``."""
    words = {name: value for name, value in pairs.items() if name in CHOICES}
    for name, value in words.items():
        if value not in CHOICES[name]:
            message = f"--set {name}={value}: must be {' or '.join(CHOICES[name])}"
            faults.append(Fault(message=message, hint=f"--set {name}={CHOICES[name][-1]}"))
    return {name: value for name, value in pairs.items() if name not in words}, words


def _read(reader: Callable[[str], Any], text: str, option: str) -> Any:
    try:
        return reader(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint=f"mend {option}, or leave it out") from error


_KEYS = ", ".join([*PARAMS, *(f"{name} ({'|'.join(words)})" for name, words in CHOICES.items())])


_FORCE = (
    "Take untested scales and checkpoints, and skip all checks before submission; numbers must divide all the same."
)


def submit_options(command: F) -> F:
    """What every submitting command takes."""
    for option in reversed(
        (
            click.option("-d", "--dry-run", is_flag=True, help="Show the jobs and submit nothing."),
            click.option("--wait", "wait_", is_flag=True, help="Follow the jobs to their end and show the results."),
            options.retries_option,
            click.option("--resume", is_flag=True, help="Only what has not succeeded here and is not under way."),
            click.option("--env", "env", multiple=True, metavar="K=V", help="Set a variable for every job."),
            click.option("--set", "params", multiple=True, metavar="KEY=VALUE", help=f"Change {_KEYS}."),
            switch_options,
            click.option("--force", is_flag=True, help=_FORCE),
            click.option("--keep-going", is_flag=True, help="Submit what is right even if something else is wrong."),
            click.option("--gpu-type", metavar="TYPE", help="GPU type, on a cluster of several."),
            click.option("--no-preflight", is_flag=True, help="Submit without looking first what stands in the way."),
            options.slurm_arg_option,
            options.format_option,
            options.install_option,
        )
    ):
        command = option(command)
    return command


def _pairs(text: tuple[str, ...], option: str, faults: list[Fault]) -> dict[str, str]:
    """The pairs by their names; what is none goes to the ``faults``."""
    pairs = {}
    for item in text:
        name, equals, value = item.partition("=")
        if equals and name.strip():
            pairs[name.strip()] = value
        else:
            message = f"{option} '{item}' is not of the form KEY=VALUE"
            faults.append(Fault(message=message, hint=f"{option} NAME=value"))
    return pairs


def parse_env(text: tuple[str, ...]) -> dict[str, str]:
    """The variables of ``--env K=V``. Raises UsageError, for names that a job may not set all at once."""
    from llmb.text.typed import KeyFaultError
    from llmb.workload.variables import check_effects, check_name, check_values

    faults = list[Fault]()
    env = _pairs(text, "--env", faults)
    checks: list[Callable[[], None]] = [*(partial(check_name, name) for name in env), partial(check_values, env)]
    checks.append(partial(check_effects, env, of_list=False))
    for check in checks:
        try:
            check()
        except KeyFaultError as error:
            faults.append(Fault(place="--env", message=str(error), hint=error.hint))
    if faults:
        raise InputFaults(faults)
    return env


def parse_set(text: tuple[str, ...]) -> tuple[dict[str, int], dict[str, str]]:
    """The parameters and the words of ``--set KEY=VALUE``. Raises UsageError that names the nearest key."""
    from llmb.text.names import suggest

    params, faults = dict[str, int](), list[Fault]()
    numbers, words = split_set(_pairs(text, "--set", faults), faults)
    for name, value in numbers.items():
        if name not in PARAMS:
            message, hint = f"--set has no parameter '{name}'", suggest(name, (*PARAMS, *CHOICES))
            faults.append(Fault(message=message, hint=hint))
        elif not value.isdecimal() or int(value) < 1:
            message = f"--set {name}={value}: must be a whole number from 1"
            faults.append(Fault(message=message, hint=_number_hint(name, value)))
        else:
            params[name] = int(value)
    if faults:
        raise InputFaults(faults)
    return params, words


def _number_hint(name: str, value: str) -> str:
    whole = re.fullmatch(r"\+?0*([1-9]\d*)\.?0*", value.strip(), re.ASCII)
    return f"--set {name}={whole[1]}" if whole else "leave it out for the workload's own value"


def settled(context: Context, requests: Sequence[JobRequest], extra: JobOverrides) -> JobOverrides:
    """``extra`` with the limit of ``--slurm-arg time=``, which is that of every job; what it comes over is said."""
    given = context.slurm_args.get("time")
    said = [spoken(given)] if given is not None else []
    said += [f"--time-limit {clock(option)}"] if (option := extra.switches.time_limit) is not None else []
    said += ["the job list's time_limit"] if any(one.switches.time_limit is not None for one in requests) else []
    own = context.config.slurm is not None and context.config.slurm.time_limit is not None
    said += ["slurm.args.time of cluster_config.yaml"] if own else []
    if len(said) > 1:
        say(f"note: {said[0]} comes over {' and '.join(said[1:])}")
    limit = seconds_of(given)
    return replace(extra, switches=replace(extra.switches, time_limit=limit)) if limit else extra


def spoken(given: str | bool) -> str:
    """``--slurm-arg time=`` as it was given."""
    return slurm_arg_in_words("time", given)


def seconds_of(given: str | bool | None) -> int | None:
    """The seconds of ``--slurm-arg time=``; None for a word of Slurm's own, as for a limit that is left away."""
    return seconds(given) or None if isinstance(given, str) else None
