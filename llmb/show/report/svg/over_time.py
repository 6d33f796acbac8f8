# SPDX-License-Identifier: Apache-2.0
"""The ratio of one configuration by night: verdicts as colours, failures below, changes. Pure."""

from collections.abc import Sequence
from datetime import date

from llmb.judge.value import FAIL_BELOW, SUSPICIOUS_ABOVE
from llmb.show.report.history import HistoryLine, HistoryPoint
from llmb.show.report.rendering import kind_of
from llmb.show.report.svg.draw import (
    Axis,
    Value,
    dot,
    element,
    in_digits,
    label,
    line,
    path,
    picture,
    shape,
    spaced,
    titled,
)

WIDTH, HEIGHT = 460.0, 150.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 38.0, 452.0, 18.0, 118.0
_LIMITS = (0.5, 1.5)  # ratios beyond them are at the edge
_DAY_SPACE = 44.0


def history_picture(key: str, history_line: HistoryLine, nights: Sequence[date]) -> str:
    """Return the picture of a line. All pictures of a page have the axis of its ``nights``."""
    first, last = nights[0].toordinal(), nights[-1].toordinal()
    across = Axis(low=first - 0.5, high=last + 0.5, start=_LEFT, end=_RIGHT)
    up = _ratios(history_line)
    shown = [point for point in history_line.points if point.night >= nights[0]]
    parts = [
        *_grid(up, history_line),
        *_days(across, nights),
        *_changes(across, shown),
        *_lines(across, up, [point for point in shown if point.ratio is not None]),
        *(_point(across, up, point) for point in shown),
    ]
    subject = (
        f"ratio to {history_line.against.figure}"
        if history_line.against
        else "ratio to the first night"
    )
    return picture(
        key,
        f"{history_line.title}: {subject}, by night",
        _description(history_line),
        WIDTH,
        HEIGHT,
        *parts,
        kind="history",
    )


def _ratios(history_line: HistoryLine) -> Axis:
    ratios = [
        min(max(point.ratio or 1.0, _LIMITS[0]), _LIMITS[1]) for point in history_line.measured
    ]
    low, high = min([0.93, *ratios]) - 0.02, max([1.05, *ratios]) + 0.02
    return Axis(low=low, high=high, start=_BOTTOM, end=_TOP)


def _grid(up: Axis, history_line: HistoryLine) -> list[str]:
    ticks = up.ticks(4)
    parts: list[str] = []
    if history_line.against:
        top, bottom = up.at(SUSPICIOUS_ABOVE), up.at(FAIL_BELOW)
        band: dict[str, Value] = {
            "class": "band",
            "x": _LEFT,
            "y": top,
            "width": _RIGHT - _LEFT,
            "height": bottom - top,
        }
        parts += [element("rect", band), line("limit", _LEFT, bottom, _RIGHT, bottom)]
    for value, words in zip(ticks, in_digits(ticks), strict=True):
        parts.append(line("grid", _LEFT, up.at(value), _RIGHT, up.at(value)))
        parts.append(label(words, _LEFT - 6, up.at(value) + 3.5, anchor="end"))
    return [*parts, line("one", _LEFT, up.at(1), _RIGHT, up.at(1))]


def _days(across: Axis, nights: Sequence[date]) -> list[str]:
    ends = [nights[0], nights[-1], *nights]
    places = spaced(
        [(across.at(night.toordinal()), night.strftime("%m-%d")) for night in ends], _DAY_SPACE
    )
    return [
        line("axis", _LEFT, _BOTTOM + 10, _RIGHT, _BOTTOM + 10),
        *(
            line(
                "axis",
                across.at(tick_night.toordinal()),
                _BOTTOM + 10,
                across.at(tick_night.toordinal()),
                _BOTTOM + 13,
            )
            for tick_night in nights
        ),
        *(label(words, place, _BOTTOM + 27, anchor="middle") for place, words in places),
    ]


def _changes(across: Axis, points: Sequence[HistoryPoint]) -> list[str]:
    """A line at each night with changes, and their number in the list below the picture."""
    parts, number = [], 0
    for point in points:
        if not point.changes:
            continue
        number += 1
        x = across.at(point.night.toordinal() - 0.5)
        tip = titled(f"{point.night}: {'; '.join(change.text for change in point.changes)}")
        parts.append(
            element(
                "g",
                {"class": "change"},
                tip,
                line("change-line", x, _TOP - 6, x, _BOTTOM + 10),
                label(str(number), x, _TOP - 8, kind="change-number", anchor="middle"),
            )
        )
    return parts


def _lines(across: Axis, up: Axis, points: Sequence[HistoryPoint]) -> list[str]:
    places = [(across.at(point.night.toordinal()), up.at(point.ratio or 0.0)) for point in points]
    return [path("line", places)] if len(places) > 1 else []


def _point(across: Axis, up: Axis, point: HistoryPoint) -> str:
    x = across.at(point.night.toordinal())
    kind = f"point {kind_of(point.word)}"
    if point.ratio is None:  # a diamond below
        y = _BOTTOM + 4
        return shape(
            kind, [(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)], f"{point.night}: {point.word}"
        )
    return dot(kind, x, up.at(point.ratio), 4, f"{point.night}: {point.text}")


def _description(history_line: HistoryLine) -> str:
    parts = [f"{point.night} {point.text}" for point in history_line.points[-60:]]
    return "; ".join(parts)
