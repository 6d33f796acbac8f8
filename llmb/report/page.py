# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page that needs no network and no other file; each part is within its limit. Pure."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from llmb.report.conditions import conditions_of, day, explanations
from llmb.report.entries import Entry, entries_of, families_of, worst_first
from llmb.report.figures import Figures, instead, metric_of_steps
from llmb.report.headline import attention, headline
from llmb.report.markdown import missing, scaling_note
from llmb.report.svg.draw import Axis
from llmb.report.svg.scaling import scaling_picture
from llmb.report.svg.steps import steps_picture
from llmb.report.svg.strips import ratio_axis, ratio_scale, ratio_strip, shares, spread_axis, spread_strip
from llmb.report.value import MEANINGS, NEEDS_ATTENTION, Report, Run, count, word_of, word_of_group
from llmb.stats.metrics import heading, shown
from llmb.text.tables import escape, shorten

if TYPE_CHECKING:
    from jinja2 import Environment

T = TypeVar("T")

ENTRIES = 250
ATTENTION = 20
CARDS = 24
FAMILIES = 24
REPEATED = 60
CHARTS = 48
FAILURES = 30
NAMED = 24  # runs of one failure
CONDITIONS = 150
RUNS = 500
TEXT = 300  # characters of one text


@dataclass(frozen=True, slots=True)
class Truncated(Generic[T]):
    """The first ``items`` of a list of ``total``."""

    items: Sequence[T]
    total: int

    @property
    def omitted(self) -> int:
        """How many items are omitted."""
        return self.total - len(self.items)


def first(items: Sequence[T], most: int) -> Truncated[T]:
    """The first ``most`` of the items."""
    return Truncated(items[:most], len(items))


class Markup(str):
    """A text that goes into the page as it is: a picture, whose texts are escaped already, or our style and script."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithPicture:
    """An entry, a family or a run with its picture."""

    of: Any
    picture: Markup


def kind_of(word: str) -> str:
    """The CSS class of a verdict or status."""
    return re.sub(r"[^a-z]+", "-", word.lower())


def charted(report: Report) -> list[Run]:
    """The runs whose steps the page shows: of the worst entries, those with at least one step."""
    entries = entries_of(report.runs)
    started = [run for run in worst_first(entries, len(report.runs)) if run.result.metrics.max_iteration is not None]
    return started[:CHARTS]


def values(report: Report) -> dict[str, Any]:
    """The variables of the template."""
    entries, conditions = entries_of(report.runs), conditions_of(report)
    top, axis = headline(entries), _axis(entries)
    explained = [
        e for e in entries if e.word in NEEDS_ATTENTION and e.runs[0].figure is not None and e.ratio is not None
    ]
    cards = first(explained, CARDS)
    runs = [(entry, run) for entry in entries for run in entry.runs]
    repeated = [entry for entry in entries if entry.value is not None and entry.value.n > 1]
    families = families_of(report)
    return {
        "headline": top,
        "missing": missing(report),
        "unreadable": report.unreadable,
        "tally": Markup(shares("tally", [(word, kind_of(word), number) for word, number in top.tally])) if runs else "",
        "items": first(attention(report, entries, cards.items), ATTENTION),
        "entries": _with_pictures(entries, ENTRIES, lambda i, entry: _ratio(axis, i, entry)),
        "scale": Markup(ratio_scale(axis)),
        "compared": any(entry.ratio or entry.result.verdict.reference for entry in entries),
        "with_rate": any(entry.rate is not None for entry in entries),
        "with_mfu": any(entry.mfu is not None for entry in entries),
        "with_parameters": any(run.job.parameters for run in report.runs),
        "figures": Figures.of(entries, report.runs),
        "instead": instead,
        "heading": heading,
        "shown": shown,
        "explanations": explanations(cards.items, report.digests),
        "cards": cards,
        "families": _with_pictures(families, FAMILIES, lambda i, one: scaling_picture(f"scaling-{i}", one)),
        "scaling_note": scaling_note([point for one in families for point in one.points]),
        "repeats": _repeats(repeated),
        "charts": _charts(runs),
        "failures": first(report.failures, FAILURES),
        "conditions": conditions,
        "condition_rows": first(conditions.rows, CONDITIONS),
        "runs": first(runs, RUNS),
        "root": _root(report.runs),
        "made": report.made.strftime("%Y-%m-%d %H:%M %Z"),
        "span": _span(report),
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


def _axis(entries: Sequence[Entry]) -> Axis:
    verdicts = [run.result.verdict for entry in entries for run in entry.runs]
    ratios = [verdict.ratio for verdict in verdicts if verdict.ratio is not None]
    return ratio_axis([*ratios, *(end for entry in entries for end in entry.result.verdict.ratio_interval or ())])


def _with_pictures(items: Sequence[T], most: int, draw: Callable[[int, T], str]) -> Truncated[WithPicture]:
    """The first ``most`` of the items, each with the picture that ``draw`` makes of its number and itself."""
    drawn = [WithPicture(of=item, picture=Markup(draw(number, item))) for number, item in enumerate(items[:most], 1)]
    return Truncated(drawn, len(items))


def _ratio(axis: Axis, number: int, entry: Entry) -> str:
    if entry.ratio is None:
        return ""
    ratios = [run.result.verdict.ratio for run in entry.runs if run.result.verdict.ratio is not None]
    interval = entry.result.verdict.ratio_interval
    return ratio_strip(f"ratio-{number}", axis, kind_of(entry.word), entry.ratio, ratios, interval)


def _repeats(entries: Sequence[Entry]) -> Truncated[WithPicture]:
    axis = spread_axis(part for entry in entries[:REPEATED] for part in _parts(entry))
    return _with_pictures(entries, REPEATED, lambda i, entry: spread_strip(f"spread-{i}", axis, _parts(entry)))


def _parts(entry: Entry) -> list[float]:
    own, together = [run.result.metrics.value for run in entry.runs], entry.value
    return [] if together is None else [one.mean / together.mean - 1 for one in own if one is not None]


def _charts(runs: Sequence[tuple[Entry, Run]]) -> Truncated[WithPicture]:
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


def _root(runs: Sequence[Run]) -> str:
    """The common folder of all runs, empty where there is none."""
    folders = [os.path.dirname(run.directory) for run in runs]  # noqa: PTH120 - a name, no file is looked at
    try:
        root = os.path.commonpath(folders) if folders else ""
    except ValueError:  # one of them is not absolute
        return ""
    return root if root != "/" else ""


def _span(report: Report) -> str:
    """The days on which the runs were submitted."""
    days = sorted(day(run.created, report.made)[:10] for run in report.runs)
    return "" if not days else days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


_TEMPLATES = Path(__file__).with_name("templates")


def to_html(report: Report) -> str:
    """The report as HTML: the same text for the same report."""
    style, script = (_asset(name) for name in ("style.css", "sort.js"))
    return (
        _environment()
        .get_template("page.html")
        .render(
            values(report),
            report=report,
            meanings=MEANINGS,
            style=Markup(style),
            script=Markup(script),
            style_hash=_digest(style),
            script_hash=_digest(script),
        )
    )


def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_printable,
        loader=FileSystemLoader(_TEMPLATES),
    )
    made.filters.update(
        fixed=lambda value, digits: f"{value:,.{digits}f}",
        percent=lambda value: f"{100 * value:.1f}",
        rate=lambda value: f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}",
        short=lambda text, width=TEXT: shorten(text, width),
        kind=kind_of,
    )
    return made


def _printable(value: Any) -> Any:
    """What a log or a name may hold that no page can: control characters, halves of surrogate pairs."""
    return escape(value) if type(value) is str else value


@cache
def _asset(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


def _digest(text: str) -> str:
    """What the page's policy names an inline style or script by, so that a browser runs no other."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
