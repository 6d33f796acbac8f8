# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page that needs nothing else: no network, no other file, no script to be read. Pure."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb.report import page
from llmb.report.value import MEANINGS, Report
from llmb.text.tables import escape, shorten

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).with_name("templates")


def to_html(report: Report) -> str:
    """The report as HTML: the same text for the same report."""
    style, script = (_asset(name) for name in ("style.css", "sort.js"))
    values = page.values(report)
    return (
        _environment()
        .get_template("page.html")
        .render(
            values,
            report=report,
            meanings=MEANINGS,
            style=_Text(style),
            script=_Text(script),
            style_hash=_digest(style),
            script_hash=_digest(script),
        )
    )


class _Text:
    """A text of our own that goes into the page as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __html__(self) -> str:
        return self.text


def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_printable,
        loader=FileSystemLoader(_TEMPLATES),
    )
    made.filters.update(
        fixed=lambda value, digits: f"{value:,.{digits}f}",
        percent=lambda value: f"{100 * value:.1f}",
        rate=lambda value: f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}",
        short=lambda text, width=page.TEXT: shorten(text, width),
        kind=page.kind_of,
    )
    return made


def _printable(value: Any) -> Any:
    """What a log or a name may hold that no page can: control characters, halves of surrogate pairs."""
    return escape(value) if type(value) is str else value


@cache
def _asset(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


def _digest(text: str) -> str:
    """What the page's policy names an inline style or script by, so that a browser runs no other."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
