# SPDX-License-Identifier: Apache-2.0
"""`llmb-run config`: the configuration as it counts, every layer applied."""

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context
from llmb.system import console


@click.command("config")
@options.install_option
@pass_context
def command(context: Context) -> None:
    """Show the configuration that counts here, as YAML."""
    import yaml

    from llmb.text.typed import to_data

    console.echo(yaml.safe_dump(to_data(context.config), sort_keys=False), nl=False)
