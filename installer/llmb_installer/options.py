# SPDX-License-Identifier: Apache-2.0
"""The options that several of llmb-install's commands share."""

from __future__ import annotations

from pathlib import Path

import click

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)

INSTALLED = click.option(
    "--install", type=FOLDER, help="The install directory; else LLMB_INSTALL or the one around this folder."
)
YES = click.option("--yes", is_flag=True, help="Do not ask before the work begins.")
DRY_RUN = click.option("--dry-run", "-d", is_flag=True, help="Show the steps and do nothing.")
FORMAT = click.option(
    "--format", "fmt", type=click.Choice(["table", "json"]), default="table", help="How to print: table or json."
)
