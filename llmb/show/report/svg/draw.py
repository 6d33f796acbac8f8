# SPDX-License-Identifier: Apache-2.0
"""Draws SVG elements and axes, and thins out thousands of marks. Pure."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence

from llmb.core.tables import escape
from llmb.core.values import dataclass

Value = str | float


def element(name: str, attributes: Mapping[str, Value], *children: str) -> str:
    """Return one element. ``children`` are elements, or texts from ``text``."""
    shown = "".join(f' {key}="{_shown(value)}"' for key, value in attributes.items())
    return f"<{name}{shown}>{''.join(children)}</{name}>" if children else f"<{name}{shown}/>"


def text(content: str) -> str:
    """Any text, with markup and control characters escaped."""
    return html.escape(escape(content))


def titled(content: str) -> str:
    """The tooltip of the element around it."""
    return element("title", {}, text(content))


def label(content: str, x: float, y: float, kind: str = "label", anchor: str = "start") -> str:
    """A text in the picture with its base line at ``y``."""
    return element("text", {"class": kind, "x": x, "y": y, "text-anchor": anchor}, text(content))


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return element("line", {"class": kind, "x1": x1, "y1": y1, "x2": x2, "y2": y2})


def dot(kind: str, x: float, y: float, radius: float, tip: str = "") -> str:
    """A point with the tooltip ``tip``."""
    return element(
        "circle", {"class": kind, "cx": x, "cy": y, "r": radius}, *([titled(tip)] if tip else [])
    )


def shape(kind: str, corners: Iterable[tuple[float, float]], tip: str = "") -> str:
    """A filled shape with the tooltip ``tip``."""
    points = " ".join(f"{_shown(x)},{_shown(y)}" for x, y in corners)
    return element("polygon", {"class": kind, "points": points}, *([titled(tip)] if tip else []))


def path(kind: str, points: Iterable[tuple[float, float]]) -> str:
    """A line through ``points``."""
    drawn = " ".join(f"{_shown(x)},{_shown(y)}" for x, y in points)
    return element("polyline", {"class": kind, "points": drawn})


def picture(
    key: str,
    title: str,
    description: str,
    width: float,
    height: float,
    *children: str,
    kind: str = "",
) -> str:
    """Return a picture of ``width`` × ``height``. ``description`` is for screen readers.

    ``key`` must be unique on the page.
    """
    attributes: dict[str, Value] = {
        "class": f"picture {kind}".strip(),
        "viewBox": f"0 0 {_shown(width)} {_shown(height)}",
        "role": "img",
        "aria-labelledby": f"{key}-title {key}-description",
    }
    words = (
        element("title", {"id": f"{key}-title"}, text(title)),
        element("desc", {"id": f"{key}-description"}, text(description)),
    )
    return element("svg", attributes, *words, *children)


def _shown(value: Value) -> str:
    if isinstance(value, str):
        return text(value)
    digits = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if digits == "-0" else digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Maps values from ``low`` to ``high`` (larger) to positions from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    #: The scale is logarithmic.
    log: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value, for one outside of the axis the nearer end."""
        inside = min(max(value, self.low), self.high)
        low, high, place = (math.log(v) if self.log else v for v in (self.low, self.high, inside))
        return self.start + (place - low) / (high - low) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def ticks(self, limit: int) -> list[float]:
        """Round values on the axis, at most about ``limit``."""
        step = round_step((self.high - self.low) / max(limit, 1))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10 ... and their tenths that is ``least`` (more than 0) or more."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def in_digits(values: Sequence[float]) -> list[str]:
    """The labels of ticks, with as many decimals as their distance needs."""
    if len(values) < 2:
        return [f"{value:,.6g}" for value in values]
    decimals = max(0, -math.floor(math.log10(values[1] - values[0]) + 1e-9))
    return [f"{value:,.{decimals}f}" for value in values]


def around(values: Iterable[float], least: float) -> tuple[float, float]:
    """Return the ends of an axis for ``values`` (one or more, positive), with space around.

    Both are at least the fraction ``least`` away from the middle, so that noise does not look
    large.
    """
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    middle = (low + high) / 2
    reach = max((high - low) / 2 * 1.15, least * middle)
    return max(0.0, middle - reach), middle + reach


def spaced(places: Iterable[tuple[float, str]], space: float) -> list[tuple[float, str]]:
    """Return labels at least ``space`` apart. Earlier labels have priority."""
    labels: list[tuple[float, str]] = []
    for place, words in places:
        if all(abs(place - taken_place) >= space for taken_place, _ in labels):
            labels.append((place, words))
    return labels


def thinned(points: Sequence[tuple[int, float]], limit: int) -> list[tuple[int, float]]:
    """Return at most about ``limit`` points: lowest and highest of each section, to keep peaks."""
    if len(points) <= limit:
        return list(points)
    size = math.ceil(2 * len(points) / limit)
    extremes = set()
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        extremes |= {
            min(stretch, key=lambda point: point[1]),
            max(stretch, key=lambda point: point[1]),
        }
    return sorted(extremes)


def few(values: Iterable[float], limit: int) -> list[float]:
    """Return at most ``limit`` (2 or more) values, ascending, with the smallest and the largest."""
    ordered = sorted(values)
    if len(ordered) <= limit:
        return ordered
    return [ordered[round(number * (len(ordered) - 1) / (limit - 1))] for number in range(limit)]
