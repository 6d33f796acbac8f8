# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from llmb.cli.context import Context
from llmb.cli.switching import split_set, switch_options
from llmb.config.habits import long_name
from llmb.errors import Fault, InputFaults, UsageError
from llmb.params import CHOICES, PARAMS

F = TypeVar("F", bound=Callable[..., Any])


def _keep_install(context: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.ensure_object(Context).install_option = value


_WORDS: dict[str, bool] = {"true": True, "false": False, "null": False}  # as in cluster_config.yaml


def _keep_slurm_args(context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> None:
    pairs = (item.partition("=") for item in value)
    own = {long_name(name): _WORDS.get(text, text) if equals else True for name, equals, text in pairs}
    context.ensure_object(Context).slurm_args |= own


def slurm_arg_in_words(name: str, value: str | bool) -> str:
    """``--slurm-arg`` as it is given for an option of sbatch with this value."""
    text = name if value is True else f"{name}={'null' if value is False else value}"
    return f"--slurm-arg {shlex.quote(text)}"


def slurm_arg_option(command: F) -> F:
    """``--slurm-arg KEY=VALUE``, as often as needed."""
    text = "Give sbatch an option: comment=x, or overcommit alone; exclusive=null leaves one of llmb's away."
    return click.option(
        "--slurm-arg", multiple=True, metavar="KEY=VALUE", expose_value=False, callback=_keep_slurm_args, help=text
    )(command)


def install_option(command: F) -> F:
    """``--install DIR``: the install directory."""
    return click.option(
        "--install", type=click.Path(path_type=Path), metavar="DIR", expose_value=False, callback=_keep_install,
        help="Install directory (else LLMB_INSTALL, else the nearest above this folder).",
    )(command)  # fmt: skip


FORMATS = ("table", "json", "csv", "md")


def format_option(command: F) -> F:
    """``--format``: how a table is printed."""
    return click.option("--format", "fmt", type=click.Choice(FORMATS), default="table", help="Output format.")(command)


def format_or_junit_option(command: F) -> F:
    """``--format`` with ``junit`` beside the others, for what can pass or fail."""
    formats = click.Choice([*FORMATS, "junit"])
    return click.option("--format", "fmt", type=formats, default="table", help="Output format.")(command)


def window_option(command: F) -> F:
    """``--window``: the iterations that count."""
    return click.option("--window", metavar="A-B", help="Iterations to measure over, 0-based, or 'last'.")(command)


def reference_option(command: F) -> F:
    """``--reference RELEASE``: whose published figures to compare with."""
    text = "Compare with the figures of this release (else of the newest that has one)."
    return click.option("--reference", metavar="RELEASE", help=text)(command)


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
    from llmb.typed import KeyFaultError
    from llmb.variables import check_name, check_values

    faults = list[Fault]()
    env = _pairs(text, "--env", faults)
    checks: list[Callable[[], None]] = [*(partial(check_name, name) for name in env), partial(check_values, env)]
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
    from llmb.names import suggest

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


def retries_option(command: F) -> F:
    """``--retries N``: what a node broke is submitted again while waiting."""
    text = "While waiting, retry up to N times a run that a node failure, a preemption or the like has ended."
    return click.option("--retries", type=click.IntRange(min=0), default=0, metavar="N", help=text)(command)


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
            retries_option,
            click.option("--resume", is_flag=True, help="Only what has not succeeded here and is not under way."),
            click.option("--env", "env", multiple=True, metavar="K=V", help="Set a variable for every job."),
            click.option("--set", "params", multiple=True, metavar="KEY=VALUE", help=f"Change {_KEYS}."),
            switch_options,
            click.option("-f", "--force", is_flag=True, help=_FORCE),
            click.option("--keep-going", is_flag=True, help="Submit what is right even if something else is wrong."),
            click.option("--gpu-type", metavar="TYPE", help="GPU type, on a cluster of several."),
            click.option("--no-preflight", is_flag=True, help="Submit without looking first what stands in the way."),
            slurm_arg_option,
            format_option,
            install_option,
        )
    ):
        command = option(command)
    return command


def numbers(_context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    """``8,16`` as numbers, for an option of comma-separated whole numbers."""
    if value is None:
        return ()
    parts = [part.strip() for part in value.split(",")]
    if any(not part.isdecimal() or int(part) < 1 for part in parts):
        option = parameter.opts[0]
        raise UsageError(f"{option}: '{value}' is not a list of whole numbers from 1", hint=f"{option} 128,256")
    return tuple(int(part) for part in parts)


def words(_context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Words given in several options or separated by commas."""
    return tuple(word.strip() for item in value for word in item.split(",") if word.strip())
