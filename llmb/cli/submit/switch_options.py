# SPDX-License-Identifier: Apache-2.0
"""The options of submitting commands that stand for switches, and how their text becomes a value."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from llmb.errors import Fault, UsageError
from llmb.system import files
from llmb.workload.params import CHOICES

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
