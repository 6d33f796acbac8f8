# SPDX-License-Identifier: Apache-2.0
"""`llmb-run completion`: prints the script that completes its words in a shell."""

import click

from llmb.cli.completion.engine import script
from llmb.cli.completion.words import HELP, SHELLS
from llmb.system import console


@click.command("completion", help=HELP.format(prog="llmb-run"))
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script for SHELL."""
    console.echo(script(shell, "llmb-run"), nl=False)
