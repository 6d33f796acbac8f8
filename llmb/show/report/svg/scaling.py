# SPDX-License-Identifier: Apache-2.0
"""A chart of measured and published values by GPU count, and a line at the smallest scale. Pure."""

from llmb.contract.metrics import heading, shown
from llmb.judge.scaling import percent
from llmb.show.report.entries import Family
from llmb.show.report.rendering import kind_of
from llmb.show.report.svg.draw import (
    Axis,
    around,
    dot,
    few,
    in_digits,
    label,
    line,
    path,
    picture,
    shape,
    spaced,
)
from llmb.show.report.value import NEEDS_ATTENTION

WIDTH, HEIGHT = 460.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 446.0, 16.0, 206.0
_MOST_DOTS = 16  # single runs of one scale
_LEAST_REACH = 0.08  # of the middle


def scaling_picture(key: str, family: Family) -> str:
    """The picture of one family."""
    smallest = family.points[0].value
    values = [
        smallest,
        *(value for _, value in family.values),
        *(figure.value for figure in family.published),
    ]
    scales = sorted(
        {point.configuration.scale for point in family.points}
        | {figure.scale for figure in family.published}
    )
    low, high = around(values, _LEAST_REACH)
    across = Axis(low=scales[0] / 1.25, high=scales[-1] * 1.25, start=_LEFT, end=_RIGHT, log=True)
    up = Axis(low=low, high=high, start=_BOTTOM, end=_TOP)
    parts = [
        *_grid(up, heading([family.metric], "") if family.kind is None else "tokens/s per GPU"),
        *_scales(across, scales),
        line("ideal", _LEFT, up.at(smallest), _RIGHT, up.at(smallest)),
        *_published(family, across, up),
        *_measured(family, across, up),
    ]
    quantity = family.metric.name if family.kind is None else "tokens per second of one GPU"
    title = f"{family.label}: {quantity}, by the number of GPUs"
    return picture(key, title, _description(family), WIDTH, HEIGHT, *parts, kind="scaling")


def _grid(up: Axis, quantity: str) -> list[str]:
    ticks = up.ticks(5)
    parts = [label(quantity, 0, _TOP - 4)]
    for value, words in zip(ticks, in_digits(ticks), strict=True):
        if up.at(value) > _TOP + 4:
            parts.append(label(words, _LEFT - 8, up.at(value) + 4, anchor="end"))
        parts.append(line("grid", _LEFT, up.at(value), _RIGHT, up.at(value)))
    return parts


def _scales(across: Axis, scales: list[int]) -> list[str]:
    space = 7.0 * len(str(scales[-1])) + 4
    places = spaced([(across.at(scale), f"{scale}") for scale in scales], space)
    return [
        line("axis", _LEFT, _BOTTOM, _RIGHT, _BOTTOM),
        *(
            line("axis", across.at(scale), _BOTTOM, across.at(scale), _BOTTOM + 4)
            for scale in scales
        ),
        *(label(words, place, _BOTTOM + 18, anchor="middle") for place, words in places),
        label("GPUs", (_LEFT + _RIGHT) / 2, _BOTTOM + 36, anchor="middle"),
    ]


def _published(family: Family, across: Axis, up: Axis) -> list[str]:
    parts = []
    for figure in family.published:
        x, y = across.at(figure.scale), up.at(figure.value)
        corners = [(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)]
        value = _in_words(family, figure.value)
        description = f"published with {figure.release}, {figure.scale} GPUs: {value}"
        parts.append(shape("published", corners, description))
    return parts


def _measured(family: Family, across: Axis, up: Axis) -> list[str]:
    places = [(across.at(p.configuration.scale), up.at(p.value)) for p in family.points]
    parts = [path("line", places)]
    for point in family.points:
        scale = point.configuration.scale
        values = few(
            [value for run_scale, value in family.values if run_scale == scale], _MOST_DOTS
        )
        parts += [dot("repeat", across.at(scale), up.at(value), 2) for value in values]
    for (x, y), point in zip(places, family.points, strict=True):
        scale = point.configuration.scale
        word = family.words.get(scale, "")
        is_marked = word in NEEDS_ATTENTION
        description = f"{scale} GPUs: {_in_words(family, point.value)}"
        parts.append(
            dot(
                f"measured {kind_of(word)} marked" if is_marked else "measured",
                x,
                y,
                4.5,
                f"{description}, {percent(point.relative)} % of the smallest scale"
                + (f", {word}" if is_marked else ""),
            )
        )
        if is_marked:
            parts.append(label(word, x, y - 10, anchor="middle"))
    return parts


def _figure(family: Family, value: float) -> str:
    return shown(value) if family.kind is None else f"{value:,.0f}"


def _in_words(family: Family, value: float) -> str:
    return (
        f"{_figure(family, value)}"
        f" {family.metric.unit if family.kind is None else 'tokens/s per GPU'}".strip()
    )


def _marked(family: Family, scale: int) -> str:
    word = family.words.get(scale, "")
    return f", {word}" if word in NEEDS_ATTENTION else ""


def _description(family: Family) -> str:
    measured = ", ".join(
        f"{point.configuration.scale} GPUs {_figure(family, point.value)}"
        f" ({percent(point.relative)} %{_marked(family, point.configuration.scale)})"
        for point in family.points
    )
    published = ", ".join(
        f"{figure.scale} GPUs {_figure(family, figure.value)}" for figure in family.published
    )
    return f"Measured: {measured}." + (f" Published: {published}." if published else "")
