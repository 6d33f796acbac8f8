# SPDX-License-Identifier: Apache-2.0
"""Writes HTML pages from templates, whose policy allows their own style and script alone."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from llmb.core.tables import escape, shorten
from llmb.core.values import dataclass
from llmb.judge.value import bounds_of, ratio_in_digits

if TYPE_CHECKING:
    from jinja2 import Environment

T = TypeVar("T")
TEXT = 300  # characters of one text


@dataclass(frozen=True, slots=True)
class Truncated(Generic[T]):
    """The first ``items`` of a list of ``total``."""

    items: Sequence[T]
    total: int

    @property
    def omitted(self) -> int:
        """The number of omitted items."""
        return self.total - len(self.items)


def first(items: Sequence[T], most: int) -> Truncated[T]:
    """The first ``most`` of the items."""
    return Truncated(items[:most], len(items))


class Markup(str):
    """A text that goes into the page as it is: an escaped picture, our style and script."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithPicture:
    """An entry, a family or a run with its picture."""

    of: Any
    picture: Markup


def kind_of(word: str) -> str:
    """The CSS class of a verdict or status."""
    return re.sub(r"[^a-z]+", "-", word.lower())


_TEMPLATES = Path(__file__).with_name("templates")


def render(template: str, values: Mapping[str, Any], **extra_values: Any) -> str:
    """The page that a template makes of ``values``, with the style and the script of all pages."""
    style, script = ((_TEMPLATES / name).read_text("utf-8") for name in ("style.css", "sort.js"))
    page_values = {
        "style": Markup(style),
        "script": Markup(script),
        "style_hash": _digest(style),
        "script_hash": _digest(script),
    }
    return _environment().get_template(template).render({**values, **page_values, **extra_values})


def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_printable,
        loader=FileSystemLoader(_TEMPLATES),
    )
    environment.filters.update(
        fixed=lambda value, digits: f"{value:,.{digits}f}",
        ratio=lambda value, result: ratio_in_digits(value, bounds_of(result)),
        percent=lambda value: f"{100 * value:.1f}",
        rate=lambda value: f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}",
        short=lambda text, width=TEXT: shorten(text, width),
        kind=kind_of,
    )
    return environment


def _printable(value: Any) -> Any:
    """Escape what no page can hold: control characters, halves of surrogate pairs."""
    return escape(value) if type(value) is str else value


def _digest(text: str) -> str:
    """Return the digest that the page's policy knows an inline style or script by."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
