# SPDX-License-Identifier: Apache-2.0
"""SVG elements, axes, and fewer marks where there would be thousands. Pure."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Values from ``low`` to ``high`` (larger) at places from ``start`` to ``end``; ``log``: by their logarithms."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The place of a value; of one that lies outside, the nearer end."""
        inside = min(max(value, self.low), self.high)
        low, high, own = (math.log(v) if self.log else v for v in (self.low, self.high, inside))
        return self.start + (own - low) / (high - low) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether the value lies on the axis."""
        return self.low <= value <= self.high

    def ticks(self, most: int) -> list[float]:
        """Round values on the axis, ``most`` or a few less."""
        step = round_step((self.high - self.low) / max(most, 1))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10 ... and their tenths that is ``least`` (more than 0) or more."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def in_digits(values: Sequence[float]) -> list[str]:
    """The values of a tick list with as many decimals as their distance needs."""
    if len(values) < 2:
        return [f"{value:,.6g}" for value in values]
    decimals = max(0, -math.floor(math.log10(values[1] - values[0]) + 1e-9))
    return [f"{value:,.{decimals}f}" for value in values]


def around(values: Iterable[float], least: float) -> tuple[float, float]:
    """A lower and an upper end that hold ``values`` (one or more, positive), with room on both sides.

    They lie at least the part ``least`` of the middle away from it, so that noise does not look like a mountain.
    """
    known = list(values)
    low, high = min(known), max(known)
    middle = (low + high) / 2
    reach = max((high - low) / 2 * 1.15, least * middle)
    return max(0.0, middle - reach), middle + reach


def spaced(places: Iterable[tuple[float, str]], room: float) -> list[tuple[float, str]]:
    """Those of the labels at their places that keep ``room`` between them; those that come first count more."""
    kept: list[tuple[float, str]] = []
    for place, words in places:
        if all(abs(place - other) >= room for other, _ in kept):
            kept.append((place, words))
    return kept


def thinned(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """At most about ``most`` points: of each stretch the lowest and the highest, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    size = math.ceil(2 * len(points) / most)
    kept = set()
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        kept |= {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
    return sorted(kept)


def few(values: Iterable[float], most: int) -> list[float]:
    """At most ``most`` (2 or more) of the values in their order by size, the smallest and the largest among them."""
    ordered = sorted(values)
    if len(ordered) <= most:
        return ordered
    return [ordered[round(number * (len(ordered) - 1) / (most - 1))] for number in range(most)]
