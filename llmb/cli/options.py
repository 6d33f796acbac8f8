# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from llmb.cli.context import Context
from llmb.config.sbatch_options import long_name
from llmb.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


class Group(click.Group):
    """A command group whose help shows the whole summary of each command, wrapped, where click would cut it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command that is not hidden: its name and its summary."""
        names = self.list_commands(ctx)
        commands = {name: found for name in names if (found := self.get_command(ctx, name)) and not found.hidden}
        if commands:
            with formatter.section("Commands"):
                formatter.write_dl([(name, one.get_short_help_str(_WHOLE)) for name, one in commands.items()])


_WHOLE = 1000  # characters of a summary, which none has


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
        "--install",
        type=click.Path(path_type=Path),
        metavar="DIR",
        expose_value=False,
        callback=_keep_install,
        help="Install directory (else LLMB_INSTALL, else the nearest above this folder).",
    )(command)


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


def retries_option(command: F) -> F:
    """``--retries N``: what a node broke is submitted again while waiting."""
    text = "While waiting, retry up to N times a run that a node failure, a preemption or the like has ended."
    return click.option("--retries", type=click.IntRange(min=0), default=0, metavar="N", help=text)(command)


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
