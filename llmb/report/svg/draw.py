# SPDX-License-Identifier: Apache-2.0
"""Elements of SVG as text: numbers with at most two decimals, every text escaped. Pure."""

import html
from collections.abc import Iterable, Mapping

from llmb.text.tables import escape

Value = str | float


def element(name: str, attributes: Mapping[str, Value], *children: str) -> str:
    """One element; ``children`` are elements already, or texts from ``text``."""
    shown = "".join(f' {key}="{_shown(value)}"' for key, value in attributes.items())
    return f"<{name}{shown}>{''.join(children)}</{name}>" if children else f"<{name}{shown}/>"


def text(content: str) -> str:
    """A text that may hold anything: markup and what is not printable are written as they are read."""
    return html.escape(escape(content))


def titled(content: str) -> str:
    """The text that a browser shows for the element that it stands in."""
    return element("title", {}, text(content))


def label(content: str, x: float, y: float, kind: str = "label", anchor: str = "start") -> str:
    """A text in the picture, its base line at ``y``."""
    return element("text", {"class": kind, "x": x, "y": y, "text-anchor": anchor}, text(content))


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """A straight line."""
    return element("line", {"class": kind, "x1": x1, "y1": y1, "x2": x2, "y2": y2})


def dot(kind: str, x: float, y: float, radius: float, told: str = "") -> str:
    """A point that says ``told``."""
    return element("circle", {"class": kind, "cx": x, "cy": y, "r": radius}, *([titled(told)] if told else []))


def shape(kind: str, corners: Iterable[tuple[float, float]], told: str = "") -> str:
    """A filled shape that says ``told``."""
    points = " ".join(f"{_shown(x)},{_shown(y)}" for x, y in corners)
    return element("polygon", {"class": kind, "points": points}, *([titled(told)] if told else []))


def path(kind: str, points: Iterable[tuple[float, float]]) -> str:
    """A line through ``points``."""
    drawn = " ".join(f"{_shown(x)},{_shown(y)}" for x, y in points)
    return element("polyline", {"class": kind, "points": drawn})


def picture(key: str, title: str, told: str, width: float, height: float, *children: str, kind: str = "") -> str:
    """A whole picture of ``width`` × ``height``: ``title`` names it, ``told`` says in words what it shows.

    ``key`` must be its own on the page.
    """
    attributes: dict[str, Value] = {
        "class": f"picture {kind}".strip(),
        "viewBox": f"0 0 {_shown(width)} {_shown(height)}",
        "role": "img",
        "aria-labelledby": f"{key}-title {key}-told",
    }
    words = element("title", {"id": f"{key}-title"}, text(title)), element("desc", {"id": f"{key}-told"}, text(told))
    return element("svg", attributes, *words, *children)


def _shown(value: Value) -> str:
    if isinstance(value, str):
        return text(value)
    digits = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if digits == "-0" else digits
