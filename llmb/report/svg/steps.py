# SPDX-License-Identifier: Apache-2.0
"""Step time over the iterations of one run, the window shaded and its outliers marked. Pure."""

import itertools
import math
from collections.abc import Collection, Sequence

from llmb.logs.samples import Step
from llmb.report.svg import draw
from llmb.report.svg.draw import Axis, Value, dot, label, line
from llmb.stats.measure import Window

WIDTH, HEIGHT = 280.0, 112.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 38.0, 276.0, 8.0, 92.0
_MOST_POINTS = 240
_MOST_MARKS = 40
_LEAST_REACH = 0.04  # of the middle: 1 % of noise is a fifth of the height at most
_LABEL_SPACE = 26.0


def steps_picture(
    key: str,
    title: str,
    steps: Sequence[Step],
    window: Window | None,
    outliers: Collection[int] = (),
    mean: float | None = None,
    planned: int | None = None,
) -> str:
    """The picture; empty without a step whose time is a number. Times in seconds; ``planned``: how many steps there
    were to be."""
    points = [
        (step.iteration, step.step_time) for step in steps if math.isfinite(step.step_time) and step.step_time > 0
    ]
    if not points:
        return ""
    counted = [time for i, time in points if window is not None and window.first <= i <= window.last]
    low, high = draw.around(counted or [time for _, time in points], _LEAST_REACH)
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1, (planned or 0) - 1)
    across = Axis(low=first, high=last, start=_LEFT, end=_RIGHT)
    up = Axis(low=low, high=high, start=_BOTTOM, end=_TOP)
    parts = [
        *_shade(across, window),
        *_grid(up),
        *_iterations(across, window),
        *_mean(across, up, window, mean),
        *_lines(across, up, draw.thinned(points, _MOST_POINTS)),
        *_marks(across, up, points, outliers),
    ]
    return draw.picture(key, title, _description(points, window, outliers, mean), WIDTH, HEIGHT, *parts, kind="steps")


def _shade(across: Axis, window: Window | None) -> list[str]:
    if window is None or window.last < across.low or window.first > across.high:
        return []
    start, end = across.at(window.first - 0.5), across.at(window.last + 0.5)
    shaded: dict[str, Value] = {
        "class": "window",
        "x": start,
        "y": _TOP,
        "width": max(end - start, 1.5),
        "height": _BOTTOM - _TOP,
    }
    return [draw.element("rect", shaded)]


def _grid(up: Axis) -> list[str]:
    ticks = up.ticks(4)
    return [
        part
        for value, words in zip(ticks, draw.in_digits(ticks), strict=True)
        for part in (
            line("grid", _LEFT, up.at(value), _RIGHT, up.at(value)),
            label(words, _LEFT - 6, up.at(value) + 3.5, anchor="end"),
        )
    ]


def _iterations(across: Axis, window: Window | None) -> list[str]:
    ends = [window.first, window.last] if window is not None else []
    marked = [number for number in (*ends, int(across.low), int(across.high)) if across.holds(number)]
    places = draw.spaced([(across.at(number), str(number)) for number in marked], _LABEL_SPACE)
    base = line("axis", _LEFT, _BOTTOM, _RIGHT, _BOTTOM)
    return [base, *(label(words, place, _BOTTOM + 15, anchor="middle") for place, words in places)]


def _mean(across: Axis, up: Axis, window: Window | None, mean: float | None) -> list[str]:
    if window is None or mean is None or not up.holds(mean):
        return []
    return [line("mean", across.at(window.first - 0.5), up.at(mean), across.at(window.last + 0.5), up.at(mean))]


def _lines(across: Axis, up: Axis, points: Sequence[tuple[int, float]]) -> list[str]:
    """The steps that lie within the height, each stretch of them a line."""
    drawn = []
    for inside, stretch in itertools.groupby(points, key=lambda point: up.holds(point[1])):
        if inside:
            places = [(across.at(i), up.at(time)) for i, time in stretch]
            drawn.append(draw.path("line", places) if len(places) > 1 else dot("line-dot", *places[0], 1.2))
    return drawn


def _marks(across: Axis, up: Axis, points: Sequence[tuple[int, float]], outliers: Collection[int]) -> list[str]:
    rings = sorted((point for point in points if point[0] in outliers), key=lambda point: -point[1])[:_MOST_MARKS]
    beyond = [(across.at(i), i, time) for i, time in points if i not in outliers and time > up.high]
    drawn = [
        dot("outlier", across.at(i), up.at(time), 3.4, f"iteration {i}: {time:.4g} s, far from the median")
        for i, time in sorted(rings)
    ]
    for place, i, time in _apart(beyond):
        corners = [(place, _TOP - 6), (place - 3.5, _TOP), (place + 3.5, _TOP)]
        drawn.append(draw.shape("beyond", corners, f"iteration {i}: {time:.4g} s, beyond the picture"))
    return drawn


def _apart(beyond: Sequence[tuple[float, int, float]]) -> list[tuple[float, int, float]]:
    """The marks that do not overlap."""
    kept: list[tuple[float, int, float]] = []
    for mark in beyond:
        if not kept or mark[0] - kept[-1][0] >= 7:
            kept.append(mark)
    return kept


def _description(
    points: Sequence[tuple[int, float]], window: Window | None, outliers: Collection[int], mean: float | None
) -> str:
    parts = [f"{len(points)} steps, iterations {points[0][0]} to {points[-1][0]}"]
    if mean is not None and window is not None:
        parts.append(f"mean {mean:.3f} s over the shaded window {window}")
    if outliers:
        parts.append(f"far from the median: iterations {', '.join(map(str, sorted(outliers)[:12]))}")
    highest = max(points, key=lambda point: point[1])
    return f"{'; '.join(parts)}; the longest step took {highest[1]:.4g} s at iteration {highest[0]}"
