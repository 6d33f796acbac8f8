# SPDX-License-Identifier: Apache-2.0
"""`llmb-run config`: the configuration with all layers applied."""

import click
import yaml

from llmb.cli import options
from llmb.cli.context import Context, pass_context
from llmb.system import console
from llmb.text.typed import to_data


@click.command("config")
@options.read_option
@pass_context
def command(context: Context) -> None:
    """Show the configuration in effect, as YAML."""
    context.need_type()
    config = context.config
    own = {} if config.own_section is None else {config.of_type.key: to_data(config.own_section)}
    console.echo(yaml.safe_dump({**to_data(config), **own}, sort_keys=False), nl=False)
