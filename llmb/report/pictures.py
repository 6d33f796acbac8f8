# SPDX-License-Identifier: Apache-2.0
"""The pictures of a report's page: of ratios, repeats and steps; each list within its limit. Pure."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from llmb.report.entries import Entry
from llmb.report.figures import metric_of_steps
from llmb.report.rendering import Markup, Truncated, WithPicture, kind_of
from llmb.report.svg.draw import Axis
from llmb.report.svg.steps import steps_picture
from llmb.report.svg.strips import ratio_axis, ratio_strip, spread_axis, spread_strip
from llmb.report.value import Run, count

T = TypeVar("T")
REPEATED = 60
CHARTS = 48


def axis_of(entries: Sequence[Entry]) -> Axis:
    """One axis for the ratios of all entries."""
    verdicts = [run.result.verdict for entry in entries for run in entry.runs]
    ratios = [verdict.ratio for verdict in verdicts if verdict.ratio is not None]
    return ratio_axis([*ratios, *(end for entry in entries for end in entry.result.verdict.ratio_interval or ())])


def with_pictures(items: Sequence[T], most: int, draw: Callable[[int, T], str]) -> Truncated[WithPicture]:
    """The first ``most`` of the items, each with the picture that ``draw`` makes of its number and itself."""
    drawn = [WithPicture(of=item, picture=Markup(draw(number, item))) for number, item in enumerate(items[:most], 1)]
    return Truncated(drawn, len(items))


def ratio_picture(axis: Axis, number: int, entry: Entry, against: str) -> str:
    """The ratio of an entry to ``against``; empty where it has none."""
    if entry.ratio is None:
        return ""
    ratios = [run.result.verdict.ratio for run in entry.runs if run.result.verdict.ratio is not None]
    interval = entry.result.verdict.ratio_interval
    return ratio_strip(f"ratio-{number}", axis, kind_of(entry.word), entry.ratio, ratios, interval, against)


def repeat_pictures(entries: Sequence[Entry]) -> Truncated[WithPicture]:
    """The repeats of each entry around their mean, on one axis."""
    axis = spread_axis(part for entry in entries[:REPEATED] for part in _parts(entry))
    return with_pictures(entries, REPEATED, lambda i, entry: spread_strip(f"spread-{i}", axis, _parts(entry)))


def _parts(entry: Entry) -> list[float]:
    own, together = [run.result.metrics.value for run in entry.runs], entry.value
    return [] if together is None else [one.mean / together.mean - 1 for one in own if one is not None]


def step_pictures(runs: Sequence[tuple[Entry, Run]]) -> Truncated[WithPicture]:
    """The steps of the first runs that have any."""
    drawn: list[WithPicture] = []
    total = 0
    for entry, run in runs:
        total += run.result.metrics.max_iteration is not None
        if run.samples is None or len(drawn) >= CHARTS:
            continue
        result = run.result
        outliers = result.metrics.statistics.outliers if result.metrics.statistics is not None else ()
        metric = metric_of_steps(run)
        what = metric.name.replace("_", " ")
        title = f"{what} of run {run.id}, {entry.label} on {count(entry.job.scale, 'GPU')}"
        picture = steps_picture(
            f"steps-{len(drawn) + 1}",
            title,
            run.samples.numbered,
            result.metrics.window,
            outliers,
            result.metrics.mean(metric.name),
            result.metrics.steps,
            metric,
        )
        if picture:
            drawn.append(WithPicture(of=(entry, run), picture=Markup(picture)))
    return Truncated(drawn, total)
