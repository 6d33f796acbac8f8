# SPDX-License-Identifier: Apache-2.0
"""The options of every submitting command, and how ``--env`` and ``--set`` are read."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from llmb.cli import options
from llmb.cli.submit.switch_options import split_set, switch_options
from llmb.errors import Fault, InputFaults
from llmb.workload.params import CHOICES, PARAMS

F = TypeVar("F", bound=Callable[..., Any])

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
