# SPDX-License-Identifier: Apache-2.0
"""The command llmb-install: the installation itself, and its sub-commands, each imported when it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb.errors import LlmbError, describe
from llmb.system import console
from llmb_installer.commands import process_setup
from llmb_installer.commands.options import DRY_RUN, FILE, FOLDER, FORMAT, YES

if TYPE_CHECKING:
    from llmb_installer.gather import Change

# Each is the object `command` of the module llmb_installer.commands.NAME; the text is what --help says of it.
COMMANDS = {
    "status": "Show what is installed.",
    "verify": "Find what is missing, changed or older than this release asks for.",
    "add": "Install workloads as well.",
    "remove": "Take workloads out.",
    "doctor": "Find what this machine and its cluster lack.",
    "image": "Build one container image by itself.",
}


class _Commands(click.Group):
    """A group whose commands are known by name alone until one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        import importlib

        found: click.Command = importlib.import_module(f"llmb_installer.commands.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", "answers_file", type=FILE, help="The answers to install by.")
@click.option("--install", type=FOLDER, help="The folder to install into; overrides the answer.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="An answer over the file: slurm.qos=high.")
@YES
@DRY_RUN
@FORMAT
@click.option("--record", "record_file", type=FILE, help="Write the answers in effect to this file.")
@click.version_option(package_name="llmb-installer", message="%(prog)s %(version)s")
@click.pass_context
def cli(
    context: click.Context,
    answers_file: Path | None,
    install: Path | None,
    settings: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    fmt: str,
    record_file: Path | None,
) -> None:
    """Build the install directory of a cluster: environments, programs and its configuration.

    \b
    llmb-install                                    ask, show the plan, do it
    llmb-install --config answers.yaml --dry-run    what would be done
    llmb-install --config answers.yaml --yes        do it; again: does what is missing
    llmb-install --yes                              in an install directory: by the answers it was made by
    """
    console.require_home()
    if context.invoked_subcommand is not None:
        return
    from llmb_installer import gather
    from llmb_installer.applying import install as flow

    terminal = sys.stdin.isatty() and sys.stdout.isatty() and not yes
    wanted = gather.gather(answers_file, install, settings, terminal=terminal, dry_run=dry_run)
    if isinstance(wanted, gather.Change):
        _go_to(context, wanted)
        return
    for note in () if wanted.agreed else wanted.notes:
        console.echo(f"note: {note}", err=True)
    if record_file is not None:
        gather.record_answers(wanted.intent, record_file)
    flow.carry_out(wanted.intent, yes=yes, dry_run=dry_run, fmt=fmt, agreed=wanted.agreed)


def _go_to(context: click.Context, wanted: Change) -> None:
    """Do what the user chose to do with an installation that is there."""
    if wanted.action == "remove":
        from llmb_installer.commands import remove

        context.invoke(remove.command, workloads=wanted.workloads, install=wanted.install)
    else:
        from llmb_installer.commands import verify

        context.invoke(verify.command, install=wanted.install, repair=True)


def main() -> None:
    """Run the command and end the process with its exit code; the one place that prints errors."""
    console.prepare()
    process_setup.end_in_order()
    try:
        code = cli.main(standalone_mode=False)
        console.flush()
    except LlmbError as error:
        console.echo(describe(error), err=True)
        code = error.exit_code
    except click.ClickException as error:
        from llmb.cli.usage import as_error

        console.echo(describe(as_error(error)), err=True)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        said = str(error.__cause__ or error)  # click makes an Abort of Ctrl-C
        console.echo(said or "interrupted; what is finished stays: the same command goes on from here", err=True)
        code = 130
    except BrokenPipeError:  # the reader of our output has gone
        code = 0
    except OSError as error:
        if not console.is_of_output(error):
            raise
        console.echo(f"error: the output cannot be written: {error.strerror}", err=True)
        code = LlmbError.exit_code
    console.give_up_output()
    sys.exit(code)
