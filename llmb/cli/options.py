# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click

from llmb.cli.commands import Deferred
from llmb.cli.context import CliContext
from llmb.errors import UsageError
from llmb.plugins.guard import DEBUG_OPTION

F = TypeVar("F", bound=Callable[..., Any])


class CommandGroup(click.Group):
    """A command group whose help shows the whole summary of each command, wrapped.

    click would cut it.
    """

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, imported now if it is one of llmb's own."""
        command = super().get_command(ctx, cmd_name)
        return command.loaded() if isinstance(command, Deferred) else command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command that is not hidden: its name and its summary."""
        commands = {
            name: command for name, command in sorted(self.commands.items()) if not command.hidden
        }
        if commands:
            with formatter.section("Commands"):
                formatter.write_dl(
                    [(name, shown.get_short_help_str(_WHOLE)) for name, shown in commands.items()]
                )


class GroupedCommand(click.Command):
    """A command with many options: its help has sections, and ``--help-all`` shows the rare ones.

    ``sections`` are the names of parameters by title. ``--help`` shows those in ``first``.
    """

    sections: ClassVar[Mapping[str, Sequence[str]]] = {}
    first: ClassVar[Collection[str]] = ()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters of the command with ``--help-all`` before ``--help``."""
        *params, help_option = super().get_params(ctx)
        return [*params, _help_all_option, help_option]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group of options, and last those without a group."""
        shows_all = bool(ctx.meta.get(_SHOWS_ALL))
        options = {
            str(option.name): record
            for option in self.get_params(ctx)
            if isinstance(option, click.Option)
            and (record := option.get_help_record(ctx)) is not None
        }
        grouped = {name for names in self.sections.values() for name in names}
        other_names = [name for name in options if name not in grouped]
        for title, names in {**self.sections, "Help": other_names}.items():
            shown = [
                options[name]
                for name in names
                if name in options and (shows_all or name in self.first or name in other_names)
            ]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)


_SHOWS_ALL = "llmb.help_all"


def _show_all(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[_SHOWS_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


_help_all_option = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show every option.",
)

_WHOLE = 1000  # characters of a summary, which none has


def _keep_install(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    cli = context.ensure_object(CliContext)
    cli.reads_archives = parameter.metavar == _OR_ARCHIVE
    if value is not None:
        cli.install_option = value


_WORDS: dict[str, bool] = {"true": True, "false": False, "null": False}  # as in cluster_config.yaml


def _keep_slurm_args(
    context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]
) -> None:
    from llmb.contract.sbatch import long_name

    pairs = (item.partition("=") for item in value)
    sbatch_options = {
        long_name(name): _WORDS.get(text, text) if equals else True for name, equals, text in pairs
    }
    _keep(context, sbatch_options)


def _keep_slurm_option(
    context: click.Context, parameter: click.Parameter, value: str | int | None
) -> None:
    if value is None:
        return
    name = str(parameter.name)
    if str(value).strip() == "":
        raise UsageError(
            f"--{name} is empty",
            hint="omit it, or name a value",
            code="value-not-allowed",
            key=f"--{name}",
            value=value,
        )
    _keep(context, {name: str(value).strip()})


def _keep(context: click.Context, sbatch_options: dict[str, str | bool]) -> None:
    """Keep these options of sbatch for the command. Raises UsageError for two different values."""
    from llmb.contract.sbatch import NODE_OPTIONS, OWN_OPTIONS
    from llmb.core import node_lists

    slurm_args = context.ensure_object(CliContext).slurm_args
    for name, value in sbatch_options.items():
        if name in OWN_OPTIONS and slurm_args.get(name, value) != value:
            raise UsageError(
                f"--{name} and --slurm-arg {name}= have different values",
                hint="give one of them",
                code="option-conflict",
                key=f"--{name}",
                value=value,
            )
        is_of_nodes = name in NODE_OPTIONS and isinstance(value, str)
        if is_of_nodes and not node_lists.has_brackets_closed(str(value)):
            raise node_lists.not_a_list(str(value), f"--{name}")
    slurm_args |= sbatch_options


def slurm_arg_in_words(name: str, value: str | bool) -> str:
    """The option that gives this option of sbatch: its own, else ``--slurm-arg``."""
    from llmb.contract.sbatch import OWN_OPTIONS

    if name in OWN_OPTIONS and not isinstance(value, bool):
        return f"--{name} {shlex.quote(value)}"
    text = name if value is True else f"{name}={'null' if value is False else value}"
    return f"--slurm-arg {shlex.quote(text)}"


# --slurm-arg KEY=VALUE, may be repeated
slurm_arg_option = click.option(
    "--slurm-arg",
    multiple=True,
    metavar="KEY=VALUE",
    expose_value=False,
    callback=_keep_slurm_args,
    help="Add an sbatch option: qos=x; KEY=null removes one.",
)
_SLURM_OPTIONS: dict[str, tuple[str, click.ParamType[Any], str]] = {
    "partition": ("NAME", click.STRING, "Partition of the jobs (Slurm)."),
    "account": ("NAME", click.STRING, "Account that the jobs are charged to (Slurm)."),
    "qos": ("NAME", click.STRING, "Quality of service (Slurm)."),
    "reservation": ("NAME", click.STRING, "Run in this reservation (Slurm)."),
    "nodelist": ("NODES", click.STRING, "Run on these nodes: n[1-4],n7 (Slurm)."),
    "exclude": ("NODES", click.STRING, "Run on none of these nodes (Slurm)."),
    "nice": ("N", click.INT, "Lower the jobs' priority by N (Slurm)."),
    "segment": ("N", click.IntRange(min=1), "Nodes of a job in one rack (Slurm)."),
}


def slurm_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of sbatch with names of their own, and ``--slurm-arg`` for the others."""
    command = slurm_arg_option(command)
    for name, (metavar, kind, text) in reversed(_SLURM_OPTIONS.items()):
        command = click.option(
            f"--{name}",
            name,
            metavar=metavar,
            type=kind,
            expose_value=False,
            callback=_keep_slurm_option,
            help=text,
        )(command)
    return command


def _keep_verbose(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.ensure_object(CliContext).verbose |= value


# Also before the command
verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_keep_verbose,
    help="Also show each job's script or files.",
)
_OR_ARCHIVE = "DIR|ARCHIVE"


def _install_option(metavar: str, text: str) -> Callable[[F], F]:
    return click.option(
        "--install",
        type=click.Path(path_type=Path),
        metavar=metavar,
        expose_value=False,
        callback=_keep_install,
        help=text,
    )


install_option = _install_option("DIR", "Install directory (default: LLMB_INSTALL or a parent).")
# of commands that only read
read_option = _install_option(_OR_ARCHIVE, "Install directory, or an archive of one.")
# of the main command; it is read before any plugin is loaded
debug_option = click.Option(
    [DEBUG_OPTION], is_flag=True, expose_value=False, help="Show the traceback of a failing plugin."
)
FORMATS = ("table", "json", "csv", "md")
format_option = click.option(
    "--format", "fmt", type=click.Choice(FORMATS), default="table", help="Output format."
)
# For results that pass or fail
format_or_junit_option = click.option(
    "--format",
    "fmt",
    type=click.Choice([*FORMATS, "junit"]),
    default="table",
    help="Output format.",
)
window_option = click.option(
    "--window", metavar="A-B", help="Iterations to measure, numbered as in the log, or 'last'."
)
reference_option = click.option(
    "--reference", metavar="RELEASE", help="Compare with this release (default: the newest)."
)
baseline_option = click.option(
    "--baseline", metavar="NAME", help="Compare with an accepted baseline, or with an archive."
)
retries_option = click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Retry a run up to N times after node failures.",
)


max_in_queue_option = click.option(
    "--max-in-queue",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep at most N of your runs in the queue; --wait submits the rest as runs end.",
)


def numbers(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int, ...]:
    """Parse an option of comma-separated whole numbers, ``8,16``."""
    if value is None:
        return ()
    parts = [part.strip() for part in value.split(",")]
    if any(not part.isdecimal() or int(part) < 1 for part in parts):
        option = parameter.opts[0]
        raise UsageError(
            f"{option}: '{value}' is not a list of whole numbers from 1",
            hint=f"{option} 128,256",
            code="value-not-allowed",
            key=option,
            value=value,
        )
    return tuple(int(part) for part in parts)


def words(
    _context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Parse words given in several options or separated by commas."""
    return tuple(word.strip() for item in value for word in item.split(",") if word.strip())
