# SPDX-License-Identifier: Apache-2.0
"""`llmb-run completion`: prints the script that completes its words in a shell."""

import click

from llmb.cli.completion import engine, words
from llmb.core import console


@click.command("completion", help=words.HELP.format(prog="llmb-run"))
@click.argument("shell", type=click.Choice(words.SHELLS))
def command(shell: str) -> None:
    """Print the completion script for SHELL."""
    console.echo(engine.script(shell, "llmb-run"), nl=False)
