# SPDX-License-Identifier: Apache-2.0
"""`llmb-run list`: the workloads, with -w every row of one; and the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say

if TYPE_CHECKING:
    from llmb.tables import Column


@click.command("list")
@click.option(
    "-w", "--workload", metavar="W", help="Show every configuration of one workload, or of one size: key_size."
)
@click.option("--published", is_flag=True, help="Show the published figures that runs are compared with.")
@click.option("--check", is_flag=True, help="Of what is published, show what does not follow from its step time.")
@options.format_option
@options.install_option
@pass_context
def command(context: Context, workload: str | None, published: bool, check: bool, fmt: str) -> None:
    """Show the workloads that can be run."""
    from llmb import listing
    from llmb.names import find_workload_and_size

    _notice_install(context.install_option)
    sizes = {name: list(known.sizes) for name, known in context.workloads.items()}
    key, size = (None, None) if workload is None else find_workload_and_size(workload, sizes)
    if published or check:
        _print_published(context, [key] if key else list(context.workloads), check, fmt)
    elif key is None:
        _print(listing.SIZES, listing.sizes(context.workloads.values()), fmt)
    else:
        rows = listing.configurations(context.workloads[key])
        _print(listing.ROWS, [row for row in rows if size in (None, row["size"])], fmt)


def _notice_install(option: Path | None) -> None:
    """Say so where LLMB_INSTALL names no install directory: this command needs none, the next one will.

    Raises UsageError where the option does.
    """
    import os

    from llmb.config import find_install
    from llmb.errors import UsageError

    if option is not None:
        find_install(option, {}, Path.cwd())
    elif os.environ.get("LLMB_INSTALL"):
        try:
            find_install(None, {"LLMB_INSTALL": os.environ["LLMB_INSTALL"]}, Path.cwd())
        except UsageError as error:
            say(f"warning: {error.message}")


def _print_published(context: Context, keys: Sequence[str], check: bool, fmt: str) -> None:
    from llmb import listing
    from llmb.recompute import TOLERANCE, disagreements

    found = {key: context.figures([key]) for key in keys}
    count = sum(map(len, found.values()))
    if not check:
        _print(listing.FIGURES, listing.figures(figure for key in keys for figure in found[key]), fmt)
        say(f"{count} published figures" if count else "nothing is published")
        return
    wrong = [one for key in keys for one in disagreements(found[key], context.workloads[key])]
    _print(listing.CHECKED, listing.checked(wrong), fmt)
    rows = len({one.figure for one in wrong})
    what = f"{len(wrong)} printed values in {rows} of them do not follow" if wrong else "all printed values follow"
    say(f"{count} published figures checked: {what} (tolerance: {TOLERANCE})")


def _print(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], fmt: str) -> None:
    """Print rows: all that is known of them to programs, to people what the columns show."""
    from llmb import listing
    from llmb.cli.output import print_rows

    if fmt == "csv":  # a list is written as people read it, not as JSON
        shown = {column.key: column.show for column in columns}
        rows = [
            {key: shown[key](value) if isinstance(value, list) else value for key, value in row.items()
             if not isinstance(value, dict)}
            for row in rows
        ]  # fmt: skip
    print_rows(listing.everything(columns, rows) if fmt in ("json", "csv") else columns, rows, fmt)
