# SPDX-License-Identifier: Apache-2.0
"""Throughput of one GPU against the number of GPUs, with published figures and the ideal line. Pure."""

from llmb.report.entries import Family
from llmb.report.svg.draw import Axis, around, dot, few, in_digits, label, line, path, picture, shape, spaced

WIDTH, HEIGHT = 460.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 446.0, 16.0, 206.0
_MOST_DOTS = 16  # single runs of one scale
_LEAST_REACH = 0.08  # of the middle


def scaling_picture(key: str, family: Family) -> str:
    """The picture of one family."""
    ideal = family.points[0].tokens_per_second_per_gpu
    rates = [ideal, *(rate for _, rate in family.rates), *(one.rate for one in family.published)]
    scales = sorted({point.configuration.scale for point in family.points} | {one.scale for one in family.published})
    low, high = around(rates, _LEAST_REACH)
    across = Axis(low=scales[0] / 1.25, high=scales[-1] * 1.25, start=_LEFT, end=_RIGHT, log=True)
    up = Axis(low=low, high=high, start=_BOTTOM, end=_TOP)
    parts = [
        *_grid(up),
        *_scales(across, scales),
        line("ideal", _LEFT, up.at(ideal), _RIGHT, up.at(ideal)),
        *_published(family, across, up),
        *_measured(family, across, up),
    ]
    title = f"{family.label}: tokens per second of one GPU, by the number of GPUs"
    return picture(key, title, _description(family), WIDTH, HEIGHT, *parts, kind="scaling")


def _grid(up: Axis) -> list[str]:
    ticks = up.ticks(5)
    parts = [label("tokens/s per GPU", 0, _TOP - 4)]
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
        *(line("axis", across.at(scale), _BOTTOM, across.at(scale), _BOTTOM + 4) for scale in scales),
        *(label(words, place, _BOTTOM + 18, anchor="middle") for place, words in places),
        label("GPUs", (_LEFT + _RIGHT) / 2, _BOTTOM + 36, anchor="middle"),
    ]


def _published(family: Family, across: Axis, up: Axis) -> list[str]:
    parts = []
    for one in family.published:
        x, y = across.at(one.scale), up.at(one.rate)
        corners = [(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)]
        description = f"published with {one.release}, {one.scale} GPUs: {one.rate:,.0f} tokens/s per GPU"
        parts.append(shape("published", corners, description))
    return parts


def _measured(family: Family, across: Axis, up: Axis) -> list[str]:
    places = [(across.at(p.configuration.scale), up.at(p.tokens_per_second_per_gpu)) for p in family.points]
    parts = [path("line", places)]
    for point in family.points:
        scale = point.configuration.scale
        rates = few([rate for own, rate in family.rates if own == scale], _MOST_DOTS)
        parts += [dot("repeat", across.at(scale), up.at(rate), 2) for rate in rates]
    for (x, y), point in zip(places, family.points, strict=True):
        description = f"{point.configuration.scale} GPUs: {point.tokens_per_second_per_gpu:,.0f} tokens/s per GPU"
        parts.append(
            dot("measured", x, y, 4.5, f"{description}, {100 * point.efficiency:.1f} % of the smallest scale's")
        )
    return parts


def _description(family: Family) -> str:
    measured = ", ".join(
        f"{point.configuration.scale} GPUs {point.tokens_per_second_per_gpu:,.0f} ({100 * point.efficiency:.1f} %)"
        for point in family.points
    )
    known = ", ".join(f"{one.scale} GPUs {one.rate:,.0f}" for one in family.published)
    return f"Measured: {measured}." + (f" Published: {known}." if known else "")
