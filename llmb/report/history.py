# SPDX-License-Identifier: Apache-2.0
"""Runs over time: what each configuration reached in each night, and what changed in between. Pure.

A night is from noon to noon, in the time zone of the report. A configuration stays one line when its image, its
settings or its machines change, unless variants of it ran in the same night.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from llmb.report.conditions import Change, changes_between
from llmb.report.entries import Entry, entries_of
from llmb.report.value import Against, Report, Run
from llmb.results.reason import TITLE, distinguishing, parameters_in_words, settings_of
from llmb.results.result import Result
from llmb.verdict.compare import judged_against
from llmb.verdict.judge import INVALID, judge, pool_key
from llmb.verdict.reference import ratio_of
from llmb.verdict.suspects import with_causes

NOON = timedelta(hours=12)
_UPGRADED = ("image", "release", "vboost")  # what changes over time, and makes no other variant
_LEAST_CHANGE = 0.01  # a fraction of the ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a configuration reached in a night.

    ``ratio``: to the reference of the report, or else to the first night; None where nothing was measured. ``word``:
    verdict or status; ``changes``: what differs from the point before.
    """

    night: date
    entry: Entry
    ratio: float | None
    changes: tuple[Change, ...] = ()

    @property
    def word(self) -> str:
        """The verdict or status of its runs."""
        return self.entry.word


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One configuration over time.

    ``note``: what distinguishes it from others of the same title; ``against``: what ratios are to: that of the report,
    or None for the first night that measured it.
    """

    title: str
    note: str
    against: Against | None
    points: tuple[Point, ...]

    @property
    def measured(self) -> tuple[Point, ...]:
        """The points that have a ratio."""
        return tuple(point for point in self.points if point.ratio is not None)

    @property
    def last(self) -> Point:
        return self.points[-1]

    @property
    def moved(self) -> float:
        """The last ratio relative to the one before, less 1; 0 without two."""
        known = [point.ratio for point in self.points if point.ratio is not None]
        return known[-1] / known[-2] - 1 if len(known) > 1 and known[-2] else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change of one night, and the titles of the lines that it holds for; ``every``: all lines of that night."""

    night: date
    text: str
    titles: tuple[str, ...]
    every: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The lines of a report, those that fell most in the latest night first; its nights, and what changed in each."""

    nights: tuple[date, ...]
    lines: tuple[Line, ...]
    steps: tuple[Step, ...]

    @property
    def latest(self) -> list[Result]:
        points = [point for line in self.lines for point in line.points if point.night == self.nights[-1]]
        return [run.result for point in points for run in point.entry.runs]

    @property
    def fallen(self) -> tuple[Line, ...]:
        """The lines that are at least 1 % lower in the latest night than before."""
        return tuple(one for one in self.lines if one.last.night == self.nights[-1] and one.moved <= -_LEAST_CHANGE)


def history_of(report: Report) -> History:
    nights: dict[date, list[Run]] = {}
    for run in sorted(report.runs, key=lambda run: (run.created, run.id)):
        nights.setdefault(night_of(run.created, report.made), []).append(run)
    found = [(night, entry) for night, runs in nights.items() for entry in entries_of(_judged(runs, report))]
    groups: dict[Hashable, list[tuple[date, Entry]]] = {}
    for (night, entry), key in zip(found, _keys(found), strict=True):
        groups.setdefault(key, []).append((night, entry))
    lines = [_line(own, report.against) for own in groups.values()]
    notes = distinguishing([(line.title, _settings(line.points[0].entry)) for line in lines])
    named = [replace(line, note=note) for line, note in zip(lines, notes, strict=True)]
    latest = max(nights, default=None)
    return History(
        nights=tuple(sorted(nights)),
        lines=tuple(sorted(named, key=lambda line: (line.last.night != latest, line.moved, line.title, line.note))),
        steps=tuple(_steps(named)),
    )


def night_of(seconds: float, made: datetime) -> date:
    """The day on which the night of a time began, in the time zone of ``made``."""
    return (datetime.fromtimestamp(seconds, made.tzinfo) - NOON).date()


def _judged(runs: Sequence[Run], report: Report) -> list[Run]:
    """The runs of one night, judged without those of other nights.

    A run of the baseline is omitted where a later one of its configuration ran in that night, which is judged by it.
    """
    baseline = report.baseline
    if baseline is not None:
        accepted = {result.identity.run for result in baseline.results}
        later = {pool_key(run.result) for run in runs if run.id not in accepted}
        runs = [run for run in runs if run.id not in accepted or pool_key(run.result) not in later]
    own = [run.result for run in runs]
    if baseline is None:
        results = judge(own, report.figures, report.release)
    else:
        results = judged_against(own, baseline.results, baseline.called)
    explained = with_causes(results, [run.result for run in report.runs])
    return [replace(run, result=result) for run, result in zip(runs, explained, strict=True)]


def _title(entry: Entry) -> tuple[Hashable, ...]:
    return (*(getattr(entry.job, name) for name in (*TITLE, "framework")), parameters_in_words(entry.job.parameters))


def _settings(entry: Entry) -> Mapping[str, str]:
    own, metrics = entry.result.identity.configuration, entry.result.metrics
    found = settings_of(own, window=None, steps=metrics.steps, without=(*TITLE, "framework", "parameters"))
    return {name: text for name, text in found.items() if name not in _UPGRADED and name != "window"}


def _keys(found: Sequence[tuple[date, Entry]]) -> list[Hashable]:
    """The line of each: its title, with the settings where a night has several variants of that title."""
    variants: dict[Hashable, dict[date, set[Hashable]]] = {}
    own = [tuple(sorted(_settings(entry).items())) for _, entry in found]
    for (night, entry), settings in zip(found, own, strict=True):
        variants.setdefault(_title(entry), {}).setdefault(night, set()).add(settings)
    several = {title for title, nights in variants.items() if any(len(one) > 1 for one in nights.values())}
    return [
        (_title(entry), settings if _title(entry) in several else ())
        for (_, entry), settings in zip(found, own, strict=True)
    ]


def _line(found: Iterable[tuple[date, Entry]], against: Against) -> Line:
    """The points by time; those of one night in the order of their first runs."""
    ordered = sorted(found, key=lambda one: (one[0], one[1].runs[0].created))
    base = next((entry for _, entry in ordered if entry.value is not None and entry.word != INVALID), None)
    compared = any(entry.ratio is not None for _, entry in ordered)
    points: list[Point] = []
    before: Entry | None = None
    for night, entry in ordered:
        changes = () if before is None else tuple(changes_between(before, entry))
        ratio = entry.ratio if compared or entry.word == INVALID else _to_first(entry, base)
        points.append(Point(night=night, entry=entry, ratio=ratio, changes=changes))
        before = entry
    return Line(title=ordered[0][1].title, note="", against=against if compared else None, points=tuple(points))


def _to_first(entry: Entry, base: Entry | None) -> float | None:
    """What was measured relative to the first night, better above 1."""
    if base is None or entry.value is None or base.value is None or entry.metric is None:
        return None
    if entry.metric != base.metric or not entry.value.mean or not base.value.mean:
        return None
    return ratio_of(entry.value, base.value, entry.metric.better).value


def _steps(lines: Sequence[Line]) -> list[Step]:
    """The changes of each night, each once with the lines that it holds for, the latest night first."""
    holds: dict[tuple[date, str], list[str]] = {}
    present: dict[date, set[str]] = {}
    for line in lines:
        title = ", ".join(filter(None, (line.title, line.note)))
        for point in line.points[1:]:
            present.setdefault(point.night, set()).add(title)
            for change in point.changes:
                holds.setdefault((point.night, change.text), []).append(title)
    found = [
        Step(night=night, text=text, titles=tuple(dict.fromkeys(titles)), every=set(titles) == present[night])
        for (night, text), titles in holds.items()
    ]
    return sorted(found, key=lambda step: (-step.night.toordinal(), -len(step.titles), step.text))
