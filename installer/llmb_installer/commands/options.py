# SPDX-License-Identifier: Apache-2.0
"""The options that several of llmb-install's commands share."""

from pathlib import Path
from typing import Any

import click


class _Named(click.Path):
    """A path that is not empty: an unset variable of a script must not come to mean this folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty: a variable that is not set?", param, ctx)
        return super().convert(value, param, ctx)


FILE = _Named(path_type=Path, dir_okay=False)
FOLDER = _Named(path_type=Path, file_okay=False)

INSTALLED = click.option(
    "--install", type=FOLDER, help="The install directory; else LLMB_INSTALL or the one around this folder."
)
YES = click.option("--yes", is_flag=True, help="Do not ask before the work begins.")
DRY_RUN = click.option("--dry-run", "-d", is_flag=True, help="Show the steps and do nothing.")
FORMAT = click.option(
    "--format", "fmt", type=click.Choice(["table", "json"]), default="table", help="How to print: table or json."
)
