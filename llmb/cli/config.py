# SPDX-License-Identifier: Apache-2.0
"""`llmb-run config`: the configuration with all layers applied."""

import click
import yaml

from llmb.cli import options
from llmb.cli.context import CliContext, pass_context
from llmb.core import console
from llmb.core.typed import to_data


@click.command("config")
@options.read_option
@pass_context
def command(context: CliContext) -> None:
    """Show the configuration in effect, as YAML."""
    context.need_type()
    config = context.config
    sections = {key: to_data(section) for key, section in config.sections.items()}
    console.echo(yaml.safe_dump({**to_data(config), **sections}, sort_keys=False), nl=False)
