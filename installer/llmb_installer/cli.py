# SPDX-License-Identifier: Apache-2.0
"""The command llmb-install: builds the install directory of a cluster from an answers file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from llmb.errors import LlmbError, UsageError, describe

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", "answers_file", type=FILE, help="The answers to install by.")
@click.option("--install", type=FOLDER, help="The folder to install into; overrides the answer.")
@click.option("--yes", is_flag=True, help="Do not ask before the work begins.")
@click.option("--dry-run", "-d", is_flag=True, help="Show the steps and do nothing.")
@click.option("--record", "record_file", type=FILE, help="Write the answers in effect to this file.")
@click.version_option(package_name="llmb-installer", message="%(prog)s %(version)s")
@click.pass_context
def cli(
    context: click.Context,
    answers_file: Path | None,
    install: Path | None,
    yes: bool,
    dry_run: bool,
    record_file: Path | None,
) -> None:
    """Build the install directory of a cluster: environments, programs and its configuration.

    \b
    llmb-install --config answers.yaml --dry-run    what would be done
    llmb-install --config answers.yaml --yes        do it; again: does what is missing
    """
    if context.invoked_subcommand is not None:
        return
    if answers_file is None:
        raise _no_answers()
    from llmb_installer import install as flow

    intent, notes = flow.prepare(answers_file, install)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    if record_file is not None:
        flow.record_answers(intent, record_file)
    flow.carry_out(intent, yes=yes, dry_run=dry_run)


def _no_answers() -> UsageError:
    """Why nothing can begin without an answers file."""
    if sys.stdin.isatty():
        message = "asking the answers in the terminal is not part of this version"
    else:
        message = "--config is missing, and there is no terminal to ask in"
    return UsageError(message, hint="write an answers file (examples/local.yaml is one) and give --config FILE --yes")


@cli.command()
@click.option("--install", type=FOLDER, help="The install directory; else LLMB_INSTALL or the one around this folder.")
def status(install: Path | None) -> None:
    """Show what is installed."""
    from llmb.config import find_install, load_config
    from llmb_installer import record, show

    folder = find_install(install, os.environ, Path.cwd())
    config, _ = load_config(folder, os.environ)
    click.echo(f"{folder}: cluster type {config.cluster_type}, GPU type {config.gpu_type}")
    click.echo(f"workloads: {', '.join(config.workloads.installed or ('none named',))}")
    for line in show.steps_text(folder, record.load(folder)):
        click.echo(line)


def main() -> None:
    """Run the command and end the process with its exit code; the one place that prints errors."""
    try:
        code = cli.main(standalone_mode=False)
    except LlmbError as error:
        click.echo(describe(error), err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    sys.exit(code)
