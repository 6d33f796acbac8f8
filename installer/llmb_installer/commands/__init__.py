# SPDX-License-Identifier: Apache-2.0
"""The sub-commands of llmb-install, and the options they share.

Each module here has one command, called `command`; cli.COMMANDS lists them.
"""

import shlex
from pathlib import Path
from typing import Any

import click


class _NonEmptyPath(click.Path):
    """A path that is not empty: an unset variable in a script must not mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty: is a variable unset?", param, ctx)
        return super().convert(value, param, ctx)


FILE = _NonEmptyPath(path_type=Path, dir_okay=False)
FOLDER = _NonEmptyPath(path_type=Path, file_okay=False)

INSTALLED = click.option("--install", type=FOLDER, help="Install directory (default: LLMB_INSTALL, or this folder).")
YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
DRY_RUN = click.option("--dry-run", "-d", is_flag=True, help="Show the steps and do nothing.")
FORMAT = click.option(
    "--format", "fmt", type=click.Choice(["table", "json"]), default="table", help="Output format: table or json."
)


def option_of(install: Path | None) -> str:
    """The option of follow-up commands: `` --install DIR``, or nothing where none was given."""
    return f" --install {shlex.quote(str(install))}" if install is not None else ""
