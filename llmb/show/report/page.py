# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page that needs no network. Each part is within its limit. Pure."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from llmb.contract.metrics import heading, shown
from llmb.core.node_lists import fold
from llmb.show.report.conditions import conditions_of, day, span
from llmb.show.report.entries import ReportEntry, entries_of, families_of
from llmb.show.report.explanations import explanations
from llmb.show.report.glance import (
    PageValues,
    glance,
    headline,
    instead,
    metric_of_steps,
    one_line,
)
from llmb.show.report.markdown import missing, scaling_note
from llmb.show.report.rendering import Markup, Truncated, WithPicture, first, kind_of, render
from llmb.show.report.svg import scaling, steps
from llmb.show.report.svg.draw import Axis
from llmb.show.report.svg.strips import (
    ratio_axis,
    ratio_scale,
    ratio_strip,
    shares,
    spread_axis,
    spread_strip,
)
from llmb.show.report.value import NEEDS_ATTENTION, Report, Run, count, word_of, word_of_group

T = TypeVar("T")
REPEATED = 60
CHARTS = 48


def axis_of(entries: Sequence[ReportEntry]) -> Axis:
    verdicts = [run.result.verdict for entry in entries for run in entry.runs]
    ratios = [verdict.ratio for verdict in verdicts if verdict.ratio is not None]
    return ratio_axis(
        [*ratios, *(end for entry in entries for end in entry.result.verdict.ratio_interval or ())]
    )


def with_pictures(
    items: Sequence[T], most: int, draw: Callable[[int, T], str]
) -> Truncated[WithPicture]:
    """Return the first ``most`` items, each with the picture that ``draw`` makes of it."""
    drawn = [
        WithPicture(of=item, picture=Markup(draw(number, item)))
        for number, item in enumerate(items[:most], 1)
    ]
    return Truncated(drawn, len(items))


def ratio_picture(axis: Axis, number: int, entry: ReportEntry, against: str) -> str:
    """Return the ratio of an entry to ``against``, empty if it has none."""
    if entry.ratio is None:
        return ""
    ratios = [
        run.result.verdict.ratio for run in entry.runs if run.result.verdict.ratio is not None
    ]
    interval = entry.result.verdict.ratio_interval
    return ratio_strip(
        f"ratio-{number}", axis, kind_of(entry.word), entry.ratio, ratios, interval, against
    )


def repeat_pictures(entries: Sequence[ReportEntry]) -> Truncated[WithPicture]:
    """The repeats of each entry around their mean, on one axis."""
    axis = spread_axis(part for entry in entries[:REPEATED] for part in _parts(entry))
    return with_pictures(
        entries, REPEATED, lambda i, entry: spread_strip(f"spread-{i}", axis, _parts(entry))
    )


def _parts(entry: ReportEntry) -> list[float]:
    spreads, together = [run.result.metrics.value for run in entry.runs], entry.value
    return (
        []
        if together is None
        else [spread.mean / together.mean - 1 for spread in spreads if spread is not None]
    )


def step_pictures(runs: Sequence[tuple[ReportEntry, Run]]) -> Truncated[WithPicture]:
    """The steps of the first runs that have any."""
    drawn: list[WithPicture] = []
    total = 0
    for entry, run in runs:
        total += run.result.metrics.max_iteration is not None
        if run.samples is None or len(drawn) >= CHARTS:
            continue
        result = run.result
        outliers = (
            result.metrics.statistics.outliers if result.metrics.statistics is not None else ()
        )
        metric = metric_of_steps(run)
        metric_name = metric.name.replace("_", " ")
        title = f"{metric_name} of run {run.id}, {entry.label} on {count(entry.job.scale, 'GPU')}"
        picture = steps.steps_picture(
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


ENTRIES = 250
ITEMS = 20
CARDS = 24
FAMILIES = 24
FAILURES = 30
NAMED = 24  # runs of one failure
CONDITIONS = 150
RUNS = 500
FORMULAS = 60


def charted(report: Report) -> list[Run]:
    """Return the runs whose steps the page shows: of the worst entries, with at least one step."""
    worst_first = (run for entry in entries_of(report.runs) for run in entry.runs)
    return [run for run in worst_first if run.result.metrics.max_iteration is not None][:CHARTS]


def computed(report: Report) -> list[ReportEntry]:
    """Return the configurations whose formulas the page shows: the worst that measured."""
    return [entry for entry in entries_of(report.runs) if entry.value is not None][:FORMULAS]


def values(report: Report) -> dict[str, Any]:
    entries, conditions = entries_of(report.runs), conditions_of(report)
    against = report.against
    top, axis = headline(entries, against), axis_of(entries)
    explained = [e for e in entries if e.word in NEEDS_ATTENTION and e.ratio is not None]
    cards = first(explained, CARDS)
    figures = PageValues.of(entries, report.runs, against)
    runs = [(entry, run) for entry in entries for run in entry.runs]
    repeated = [entry for entry in entries if entry.value is not None and entry.value.n > 1]
    families = families_of(report)
    return {
        "title": report.title,
        "headline": top,
        "one_line": one_line(report, entries),
        "missing": missing(report),
        "unreadable": report.unreadable,
        "first_sections": sum(section.first for section in report.sections),
        "tally": Markup(
            shares("tally", [(word, kind_of(word), number) for word, number in top.tally])
        )
        if runs
        else "",
        "items": first(glance(report, entries, cards.items, figures), ITEMS),
        "entries": with_pictures(
            entries, ENTRIES, lambda i, entry: ratio_picture(axis, i, entry, against.figure)
        ),
        "scale": Markup(ratio_scale(axis)),
        "compared": any(entry.ratio or entry.result.verdict.reference for entry in entries),
        "with_rate": any(entry.rate is not None for entry in entries),
        "with_mfu": any(entry.mfu is not None for entry in entries),
        "with_parameters": any(run.job.parameters for run in report.runs),
        "figures": figures,
        "against": against,
        "with_nodes": any(run.hosts for run in report.runs),
        "fold": fold,
        "instead": instead,
        "heading": heading,
        "shown": shown,
        "explanations": explanations(cards.items, report.digests),
        "cards": cards,
        "families": with_pictures(
            families, FAMILIES, lambda i, family: scaling.scaling_picture(f"scaling-{i}", family)
        ),
        "scaling_note": scaling_note([point for family in families for point in family.points]),
        "repeats": repeat_pictures(repeated),
        "charts": step_pictures(runs),
        "failures": first(report.failures, FAILURES),
        "computed": Truncated(
            [entry for entry in entries if entry.runs[0].formulas][:FORMULAS],
            sum(entry.value is not None for entry in entries),
        ),
        "conditions": conditions,
        "condition_rows": first(conditions.rows, CONDITIONS),
        "runs": first(runs, RUNS),
        "root": _root(report.runs),
        "made": report.made.strftime("%Y-%m-%d %H:%M %Z"),
        "span": span(report),
        "gpu_types": ", ".join(sorted({run.job.gpu_type for run in report.runs})),
        "day": lambda seconds: day(seconds, report.made),
        "count": count,
        "below": below,
        "word_of": word_of,
        "word_of_group": word_of_group,
        "most_named": NAMED,
    }


def below(path: str, root: str) -> str:
    """The path relative to ``root``, if there is one."""
    return os.path.relpath(path, root) if root else path


def _root(runs: Sequence[Run]) -> str:
    """Return the common folder of all runs, empty if there is none."""
    folders = [os.path.dirname(run.directory) for run in runs]  # noqa: PTH120 - no file is read
    try:
        root = os.path.commonpath(folders) if folders else ""
    except ValueError:  # one of them is not absolute
        return ""
    return root if root != "/" else ""


def sections_html(report: Report) -> str:
    """A page of plugins alone."""
    page_values = {"title": report.title, "made": report.made.strftime("%Y-%m-%d %H:%M %Z")}
    return render("plugin_page.html", page_values, report=report)


def to_html(report: Report) -> str:
    """The report as HTML: the same text for the same report."""
    return render("page.html", values(report), report=report, meanings=report.against.meanings)
