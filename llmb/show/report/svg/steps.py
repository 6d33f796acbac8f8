# SPDX-License-Identifier: Apache-2.0
"""A chart of one run's iterations, with the window shaded and outliers marked. Pure."""

import itertools
import math
from collections.abc import Collection, Sequence

from llmb.contract.metrics import LOWER, STEP_TIME, TRAINING_BY_NAME, MetricSpec
from llmb.contract.samples import Step
from llmb.contract.window import Window
from llmb.show.report.svg import draw
from llmb.show.report.svg.draw import Axis, Value, dot, label, line

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
    metric: MetricSpec = TRAINING_BY_NAME[STEP_TIME],
) -> str:
    """Return the picture of a metric, empty without a step whose value is a number.

    ``mean``: over the window. ``planned``: the number of steps that there were to be.
    """
    values = ((step.iteration, _value(step, metric)) for step in steps)
    points = [
        (iteration, value) for iteration, value in values if math.isfinite(value) and value > 0
    ]
    if not points:
        return ""
    counted = [
        value for i, value in points if window is not None and window.first <= i <= window.last
    ]
    low, high = draw.around(counted or [value for _, value in points], _LEAST_REACH)
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1, (planned or 0) - 1)
    across = Axis(low=first, high=last, start=_LEFT, end=_RIGHT)
    up = Axis(low=low, high=high, start=_BOTTOM, end=_TOP)
    parts = [
        *_shade(across, window),
        *_grid(up),
        *_iterations(across, window),
        *_mean(across, up, window, mean),
        *_lines(across, up, draw.thinned(points, _MOST_POINTS)),
        *_marks(across, up, points, outliers, metric),
    ]
    description = _description(points, window, outliers, mean, metric)
    return draw.picture(key, title, description, WIDTH, HEIGHT, *parts, kind="steps")


def _value(step: Step, metric: MetricSpec) -> float:
    return step.step_time if metric.name == STEP_TIME else step.values.get(metric.name, math.nan)


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
    marked = [
        number for number in (*ends, int(across.low), int(across.high)) if across.holds(number)
    ]
    places = draw.spaced([(across.at(number), str(number)) for number in marked], _LABEL_SPACE)
    base = line("axis", _LEFT, _BOTTOM, _RIGHT, _BOTTOM)
    return [base, *(label(words, place, _BOTTOM + 15, anchor="middle") for place, words in places)]


def _mean(across: Axis, up: Axis, window: Window | None, mean: float | None) -> list[str]:
    if window is None or mean is None or not up.holds(mean):
        return []
    return [
        line(
            "mean",
            across.at(window.first - 0.5),
            up.at(mean),
            across.at(window.last + 0.5),
            up.at(mean),
        )
    ]


def _lines(across: Axis, up: Axis, points: Sequence[tuple[int, float]]) -> list[str]:
    """The steps that lie within the height, each stretch of them a line."""
    drawn = []
    for inside, stretch in itertools.groupby(points, key=lambda point: up.holds(point[1])):
        if inside:
            places = [(across.at(i), up.at(value)) for i, value in stretch]
            drawn.append(
                draw.path("line", places) if len(places) > 1 else dot("line-dot", *places[0], 1.2)
            )
    return drawn


def _marks(
    across: Axis,
    up: Axis,
    points: Sequence[tuple[int, float]],
    outliers: Collection[int],
    metric: MetricSpec,
) -> list[str]:
    """Return the outliers, and triangles for values that are worse than the height shows."""
    rings = sorted(
        (point for point in points if point[0] in outliers), key=lambda point: -point[1]
    )[:_MOST_MARKS]
    drawn = []
    for i, value in sorted(rings):
        text = f"iteration {i}: {_in_words(value, metric)}, far from the median"
        drawn.append(dot("outlier", across.at(i), up.at(value), 3.4, text))
    low = metric.better != LOWER
    edge, tip = (_BOTTOM, _BOTTOM + 6) if low else (_TOP, _TOP - 6)
    beyond = [
        (across.at(i), i, value)
        for i, value in points
        if i not in outliers and (value < up.low if low else value > up.high)
    ]
    for place, i, value in _apart(beyond):
        corners = [(place, tip), (place - 3.5, edge), (place + 3.5, edge)]
        tip_text = f"iteration {i}: {_in_words(value, metric)}, outside the chart"
        drawn.append(draw.shape("beyond", corners, tip_text))
    return drawn


def _in_words(value: float, metric: MetricSpec) -> str:
    return f"{value:.4g} {metric.unit}".strip()


def _apart(beyond: Sequence[tuple[float, int, float]]) -> list[tuple[float, int, float]]:
    """The marks that do not overlap."""
    marks: list[tuple[float, int, float]] = []
    for mark in beyond:
        if not marks or mark[0] - marks[-1][0] >= 7:
            marks.append(mark)
    return marks


def _description(
    points: Sequence[tuple[int, float]],
    window: Window | None,
    outliers: Collection[int],
    mean: float | None,
    metric: MetricSpec,
) -> str:
    parts = [f"{len(points)} steps, iterations {points[0][0]} to {points[-1][0]}"]
    if mean is not None and window is not None:
        shown = f"{mean:.3f} s" if metric.name == STEP_TIME else _in_words(mean, metric)
        parts.append(f"mean {shown} over the shaded window {window}")
    if outliers:
        parts.append(
            f"far from the median: iterations {', '.join(map(str, sorted(outliers)[:12]))}"
        )
    worst = (max if metric.better == LOWER else min)(points, key=lambda point: point[1])
    word = "the longest step took" if metric.name == STEP_TIME else "the worst is"
    return f"{'; '.join(parts)}; {word} {_in_words(worst[1], metric)} at iteration {worst[0]}"
