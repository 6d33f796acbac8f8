# SPDX-License-Identifier: Apache-2.0
"""Small pictures for cells of tables: ratios with interval, spread of repeats, shares. Pure."""

import math
from collections.abc import Iterable, Sequence

from llmb.judge.value import FAIL_BELOW, SUSPICIOUS_ABOVE, ratio_in_digits
from llmb.show.report.svg.draw import Axis, Value, dot, element, few, label, line, picture, shape

WIDTH, HEIGHT = 180.0, 24.0
_SIDE = 10.0
_MIDDLE = HEIGHT / 2
_MOST_DOTS = 40
_LIMITS = (0.8, 1.15)  # ratios beyond them are marked at the edge


def ratio_axis(values: Iterable[float]) -> Axis:
    """One axis for all ratios of a table, so that its rows can be compared by eye."""
    ratios = [min(max(value, _LIMITS[0]), _LIMITS[1]) for value in values]
    low = math.floor(round(20 * min([0.9, *ratios]), 6)) / 20
    high = math.ceil(round(20 * max([1.06, *ratios]), 6)) / 20
    return Axis(low=low, high=high, start=_SIDE, end=WIDTH - _SIDE)


def ratio_strip(
    key: str,
    axis: Axis,
    kind: str,
    mean: float,
    ratios: Sequence[float],
    interval: tuple[float, float] | None,
    against: str,
) -> str:
    """Return the ratio to ``against``: repeats as small dots, their mean, and the interval."""
    low, high = axis.at(FAIL_BELOW), axis.at(SUSPICIOUS_ABOVE)
    parts = [
        element(
            "rect", {"class": "band", "x": low, "y": 2, "width": high - low, "height": HEIGHT - 4}
        ),
        line("limit", low, 2, low, HEIGHT - 2),
        line("one", axis.at(1), 0, axis.at(1), HEIGHT),
    ]
    if interval is not None:
        left, right = (axis.at(end) for end in interval)
        parts.append(line(f"interval {kind}", left, _MIDDLE, right, _MIDDLE))
        parts += [
            line(f"interval {kind}", place, _MIDDLE - 4, place, _MIDDLE + 4)
            for place in (left, right)
        ]
    if len(ratios) > 1:
        parts += [
            dot("repeat", axis.at(value), _MIDDLE, 2, ratio_in_digits(value))
            for value in few(ratios, _MOST_DOTS)
        ]
    parts.append(_point(axis, kind, mean))
    ratio = ratio_in_digits(mean)
    description = f"{ratio} of {against}"
    if interval is not None:
        description += f", 95 % interval {' to '.join(map(ratio_in_digits, interval))}"
    return picture(key, f"ratio {ratio}", description, WIDTH, HEIGHT, *parts, kind="strip")


def ratio_scale(axis: Axis) -> str:
    """The numbers of a ratio axis, for the head of the table."""
    ticks = axis.ticks(4)
    shown = [label(f"{value:.2f}", axis.at(value), 11, anchor="middle") for value in ticks]
    attributes: dict[str, Value] = {
        "class": "picture strip",
        "viewBox": f"0 0 {WIDTH:g} 14",
        "aria-hidden": "true",
        "focusable": "false",
    }
    return element("svg", attributes, *shown)


def spread_axis(parts: Iterable[float]) -> Axis:
    """Return one axis for all spreads of a table, symmetric, 1 % or more of the mean."""
    reach = max([0.01, *map(abs, parts)]) * 1.05
    return Axis(low=-reach, high=reach, start=_SIDE, end=WIDTH - _SIDE)


def spread_strip(key: str, axis: Axis, parts: Sequence[float]) -> str:
    """Repeats around their mean, as fractions of it."""
    base = line("axis", _SIDE, _MIDDLE, WIDTH - _SIDE, _MIDDLE)
    shown = [
        dot("measured", axis.at(part), _MIDDLE, 3, f"{100 * part:+.2f} %")
        for part in few(parts, _MOST_DOTS)
    ]
    description = (
        f"{len(parts)} repeats, from {100 * min(parts):+.2f} % to {100 * max(parts):+.2f} % of"
        " their mean"
    )
    middle = line("one", axis.at(0), 2, axis.at(0), HEIGHT - 2)
    return picture(
        key, "spread of the repeats", description, WIDTH, HEIGHT, base, middle, *shown, kind="strip"
    )


def shares(key: str, tally: Sequence[tuple[str, str, int]]) -> str:
    """Return a bar of the configurations by word: ``tally`` has the word, its class, the count."""
    total = sum(number for _, _, number in tally)
    parts, start = [], 0.0
    for word, kind, number in tally:
        wide = 100 * number / total
        box: dict[str, Value] = {
            "class": f"share {kind}",
            "x": f"{start:.3f}%",
            "y": 0,
            "width": f"{wide:.3f}%",
        }
        parts.append(
            element("rect", {**box, "height": 14}, element("title", {}, f"{number} {word}"))
        )
        start += wide
    words = ", ".join(f"{number} {word}" for word, _, number in tally)
    title = element("title", {"id": f"{key}-title"}, f"configurations: {words}")
    attributes: dict[str, Value] = {
        "class": "shares",
        "role": "img",
        "aria-labelledby": f"{key}-title",
    }
    return element("svg", {**attributes, "width": "100%", "height": 14}, title, *parts)


def _point(axis: Axis, kind: str, mean: float) -> str:
    place = axis.at(mean)
    if axis.holds(mean):
        return dot(f"point {kind}", place, _MIDDLE, 4.5, ratio_in_digits(mean))
    away = 7.0 if mean > axis.high else -7.0
    corners = [(place + away, _MIDDLE), (place, _MIDDLE - 5), (place, _MIDDLE + 5)]
    return shape(f"point {kind}", corners, f"{ratio_in_digits(mean)}, outside the chart")
