# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from llmb.cli.context import Context
from llmb.errors import UsageError
from llmb.params import PARAMS

F = TypeVar("F", bound=Callable[..., Any])


def _keep_install(context: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.ensure_object(Context).install_option = value


def install_option(command: F) -> F:
    """``--install DIR``: the install directory."""
    return click.option(
        "--install", type=click.Path(path_type=Path), metavar="DIR", expose_value=False, callback=_keep_install,
        help="Install directory (else LLMB_INSTALL, else the nearest above this folder).",
    )(command)  # fmt: skip


def format_option(command: F) -> F:
    """``--format``: how a table is printed."""
    formats = click.Choice(["table", "json", "csv", "md"])
    return click.option("--format", "fmt", type=formats, default="table", help="Output format.")(command)


def _pairs(text: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = {}
    for item in text:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} '{item}' is not of the form KEY=VALUE", hint=f"{option} NAME=value")
        pairs[name.strip()] = value
    return pairs


def parse_env(text: tuple[str, ...]) -> dict[str, str]:
    """The variables of ``--env K=V``. Raises UsageError."""
    return _pairs(text, "--env")


def parse_params(text: tuple[str, ...]) -> dict[str, int]:
    """The parameters of ``--set KEY=VALUE``. Raises UsageError that names the nearest key."""
    from llmb.names import suggest

    params = {}
    for name, value in _pairs(text, "--set").items():
        if name not in PARAMS:
            raise UsageError(f"--set has no parameter '{name}'", hint=suggest(name, PARAMS))
        if not value.isdecimal() or int(value) < 1:
            raise UsageError(f"--set {name}={value}: must be a whole number from 1", hint=f"--set {name}=2")
        params[name] = int(value)
    return params


def submit_options(command: F) -> F:
    """What every submitting command takes."""
    for option in reversed(
        (
            click.option("-d", "--dry-run", is_flag=True, help="Show the jobs and submit nothing."),
            click.option("--wait", "wait_", is_flag=True, help="Follow the jobs to their end and show the results."),
            click.option("--env", "env", multiple=True, metavar="K=V", help="Set a variable for every job."),
            click.option("--set", "params", multiple=True, metavar="KEY=VALUE", help=f"Change {', '.join(PARAMS)}."),
            click.option(
                "-f", "--force", is_flag=True, help="Lift limits of scale and of the checks before submission."
            ),
            click.option("--keep-going", is_flag=True, help="Submit what is right even if something else is wrong."),
            click.option("--gpu-type", metavar="TYPE", help="GPU type, on a cluster of several."),
            format_option,
            install_option,
        )
    ):
        command = option(command)
    return command


def numbers(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    """``8,16`` as numbers, for an option of comma-separated whole numbers."""
    if value is None:
        return ()
    parts = [part.strip() for part in value.split(",")]
    if any(not part.isdecimal() or int(part) < 1 for part in parts):
        raise click.BadParameter(f"'{value}' is not a list of whole numbers; write 128,256")
    return tuple(int(part) for part in parts)


def words(_context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Words given in several options or separated by commas."""
    return tuple(word.strip() for item in value for word in item.split(",") if word.strip())
