# SPDX-License-Identifier: Apache-2.0
"""`llmb-run docs`: the documentation of this version, without a network."""

import os
import sys
from pathlib import Path

import click

import llmb
from llmb.core import console, names, tables
from llmb.errors import UsageError

_PACKAGE = Path(llmb.__file__).parent


def folder() -> Path:
    """The pages within an installed package, else those of the checkout."""
    inside = _PACKAGE / "docs"
    return inside if inside.is_dir() else _PACKAGE.parent / "docs"


def _title(page: Path) -> str:
    with page.open(encoding="utf-8") as lines:
        return next(
            (line.lstrip("# ").strip() for line in lines if line.startswith("# ")), page.stem
        )


@click.command("docs")
@click.argument("page", required=False, metavar="[PAGE]")
@click.option("--path", is_flag=True, help="Print the path of the page, or of the folder.")
def command(page: str | None, path: bool) -> None:
    """Show a page of the documentation, or list the pages."""
    pages = {path.stem: path for path in sorted(folder().glob("*.md")) if path.stem != "index"}
    if page is None:
        width = max(map(len, pages), default=0)
        lines = (
            [str(folder())]
            if path
            else [f"{name:<{width}}  {_title(page_path)}" for name, page_path in pages.items()]
        )
        console.echo("\n".join(lines))
        return
    name = Path(page).name.removesuffix(".md")
    if name not in pages:
        message = f"no page '{page}'"
        suggestion = names.suggest(name, list(pages))
        raise UsageError(
            message,
            hint=f"{suggestion}  llmb-run docs",
            code="page-unknown",
            key="page",
            value=page,
        )
    if path:
        console.echo(str(pages[name]))
    elif sys.stdout.isatty():
        _show(pages[name])
    else:
        console.echo(pages[name].read_text("utf-8"), nl=False)


def _show(page: Path) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    os.environ.setdefault("LESS", "FRX")  # as git does: without R, less prints escape codes
    shown = Console(width=tables.output_width())
    with shown.pager(styles=True):
        shown.print(Markdown(page.read_text("utf-8"), hyperlinks=False))
