# SPDX-License-Identifier: Apache-2.0
"""Runs over time: what each configuration reached in each night, and what changed in between. Pure.

A night is from noon to noon, in the time zone of the report. A configuration stays one line when
its image, its settings or its machines change, unless variants of it ran in the same night.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta

from llmb.core.grouping import grouped
from llmb.core.values import dataclass
from llmb.judge.change_points import ChangePoint, change_points
from llmb.judge.compare import judged_against
from llmb.judge.judge import judge, pool_key, without_session
from llmb.judge.reference import relative
from llmb.judge.value import INVALID, NO_REFERENCE
from llmb.judge.verdict_causes import with_causes
from llmb.measure.result import Result
from llmb.measure.result_notes import TITLE, distinguishing, parameters_in_words, settings_of
from llmb.show.report.conditions import ConditionChange, changes_between
from llmb.show.report.entries import ReportEntry, entries_of
from llmb.show.report.value import Against, Report, Run

NOON = timedelta(hours=12)
_UPGRADED = ("image", "release", "vboost")  # what changes over time, and makes no other variant
_LEAST_CHANGE = 0.01  # a fraction of the ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """One configuration in one night."""

    night: date
    entry: ReportEntry
    #: To the reference of the report, or else to the first night. None if nothing was measured.
    ratio: float | None
    #: The differences from the point before.
    changes: tuple[ConditionChange, ...] = ()

    @property
    def word(self) -> str:
        """The verdict or status of its runs."""
        return self.entry.word

    @property
    def is_to_first(self) -> bool:
        """True if the ratio is to the first night, so that a verdict is by the metric's limits."""
        return self.ratio is not None and self.entry.ratio is None

    @property
    def ratio_text(self) -> str:
        """The ratio in the digits of a report's entry."""
        return f"{self.ratio:.3f}" if self.is_to_first else self.entry.ratio_text

    @property
    def text(self) -> str:
        """Its ratio and verdict, as ``0.950 WARN``."""
        if self.ratio is None:
            return self.word
        if self.word == NO_REFERENCE:
            return self.ratio_text
        if self.is_to_first:
            return f"{self.word} by limits, {self.ratio_text}"
        return f"{self.ratio_text} {self.word}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """One configuration over time."""

    title: str
    #: The settings that distinguish it from others of the same title.
    note: str
    #: The reference of the report, or None for the first night that measured it.
    against: Against | None
    points: tuple[HistoryPoint, ...]

    @property
    def measured(self) -> tuple[HistoryPoint, ...]:
        """The points that have a ratio."""
        return tuple(point for point in self.points if point.ratio is not None)

    @property
    def name(self) -> str:
        """Its title and note."""
        return ", ".join(filter(None, (self.title, self.note)))

    @property
    def last(self) -> HistoryPoint:
        return self.points[-1]

    @property
    def moved(self) -> float:
        """Return the last ratio relative to the one before, less 1. It is 0 without two."""
        ratios = [point.ratio for point in self.points if point.ratio is not None]
        return ratios[-1] / ratios[-2] - 1 if len(ratios) > 1 and ratios[-2] else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChange:
    """A change of one night, and the titles of its lines."""

    night: date
    text: str
    titles: tuple[str, ...]
    #: It holds for all lines of that night.
    every: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryShift:
    """A lasting change of the speed of one line."""

    #: Its title and note.
    title: str
    #: The first night at the new level.
    night: date
    level: ChangePoint
    #: What changed since the point before, as far as records and logs show it.
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFault:
    """A wrong loss or memory of one line in one night, which no ratio of the speed shows."""

    night: date
    #: The title and note of the line.
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The lines of a report, the deepest fall in the latest night first, nights, changes."""

    nights: tuple[date, ...]
    lines: tuple[HistoryLine, ...]
    steps: tuple[HistoryChange, ...]
    #: The latest first, in one night the deepest fall.
    shifts: tuple[HistoryShift, ...] = ()
    #: The latest night first.
    faults: tuple[HistoryFault, ...] = ()

    @property
    def latest_faults(self) -> tuple[HistoryFault, ...]:
        return tuple(fault for fault in self.faults if fault.night == self.nights[-1])

    @property
    def latest(self) -> list[Result]:
        points = [
            point for line in self.lines for point in line.points if point.night == self.nights[-1]
        ]
        return [run.result for point in points for run in point.entry.runs]

    @property
    def fallen(self) -> tuple[HistoryLine, ...]:
        """The lines that are at least 1 % lower in the latest night than before."""
        return tuple(
            line
            for line in self.lines
            if line.last.night == self.nights[-1] and line.moved <= -_LEAST_CHANGE
        )


def history_of(report: Report) -> History:
    # Runs of one night are judged together, whichever command submitted them.
    nights = grouped(
        (night_of(run.created, report.made), replace(run, result=without_session(run.result)))
        for run in sorted(report.runs, key=lambda run: (run.created, run.id))
    )
    night_entries = [
        (night, entry)
        for night, runs in nights.items()
        for entry in entries_of(_judged(runs, report))
    ]
    groups = grouped(zip(_keys(night_entries), night_entries, strict=True))
    lines = [_line(group, report.against) for group in groups.values()]
    notes = distinguishing([(line.title, _settings(line.points[0].entry)) for line in lines])
    named = [replace(line, note=note) for line, note in zip(lines, notes, strict=True)]
    latest = max(nights, default=None)
    return History(
        nights=tuple(sorted(nights)),
        lines=tuple(
            sorted(
                named,
                key=lambda line: (line.last.night != latest, line.moved, line.title, line.note),
            )
        ),
        steps=tuple(_steps(named)),
        shifts=tuple(_shifts(named)),
        faults=tuple(_faults(named)),
    )


def night_of(seconds: float, made: datetime) -> date:
    """The day on which the night of a time began, in the time zone of ``made``."""
    return (datetime.fromtimestamp(seconds, made.tzinfo) - NOON).date()


def _judged(runs: Sequence[Run], report: Report) -> list[Run]:
    """Judge the runs of one night without other nights.

    A run of the baseline is omitted if a later one of its configuration ran in that night, which
    is judged by it.
    """
    baseline = report.baseline
    if baseline is not None:
        accepted = {result.identity.run for result in baseline.results}
        later = {pool_key(run.result) for run in runs if run.id not in accepted}
        runs = [run for run in runs if run.id not in accepted or pool_key(run.result) not in later]
    run_results = [run.result for run in runs]
    if baseline is None:
        results = judge(run_results, report.figures, report.release)
    else:
        results = judged_against(run_results, baseline.results, baseline.called)
        results = [
            replace(result, verdict=replace(result.verdict, word=NO_REFERENCE))
            if result.identity.run in accepted
            else result
            for result in results
        ]
    explained = with_causes(results, [run.result for run in report.runs])
    return [replace(run, result=result) for run, result in zip(runs, explained, strict=True)]


def _title(entry: ReportEntry) -> tuple[Hashable, ...]:
    return (
        *(getattr(entry.job, name) for name in (*TITLE, "framework")),
        parameters_in_words(entry.job.parameters),
    )


def _settings(entry: ReportEntry) -> Mapping[str, str]:
    configuration, metrics = entry.result.identity.configuration, entry.result.metrics
    settings = settings_of(
        configuration, window=None, steps=metrics.steps, without=(*TITLE, "framework", "parameters")
    )
    return {
        name: text for name, text in settings.items() if name not in _UPGRADED and name != "window"
    }


def _keys(night_entries: Sequence[tuple[date, ReportEntry]]) -> list[Hashable]:
    """Return the line of each: its title, and settings if a night has several variants of it."""
    variants: dict[Hashable, dict[date, set[Hashable]]] = {}
    entry_settings = [tuple(sorted(_settings(entry).items())) for _, entry in night_entries]
    for (night, entry), settings in zip(night_entries, entry_settings, strict=True):
        variants.setdefault(_title(entry), {}).setdefault(night, set()).add(settings)
    several = {
        title
        for title, nights in variants.items()
        if any(len(variant_settings) > 1 for variant_settings in nights.values())
    }
    return [
        (_title(entry), settings if _title(entry) in several else ())
        for (_, entry), settings in zip(night_entries, entry_settings, strict=True)
    ]


def _line(night_entries: Iterable[tuple[date, ReportEntry]], against: Against) -> HistoryLine:
    """Return the points by time, in one night in the order of their first runs."""
    ordered = sorted(
        night_entries, key=lambda night_entry: (night_entry[0], night_entry[1].runs[0].created)
    )
    base = next(
        (entry for _, entry in ordered if entry.value is not None and entry.word != INVALID), None
    )
    compared = any(entry.ratio is not None for _, entry in ordered)
    points: list[HistoryPoint] = []
    before: ReportEntry | None = None
    for night, entry in ordered:
        changes = () if before is None else tuple(changes_between(before, entry))
        ratio = entry.ratio if compared or entry.word == INVALID else _to_first(entry, base)
        points.append(HistoryPoint(night=night, entry=entry, ratio=ratio, changes=changes))
        before = entry
    return HistoryLine(
        title=ordered[0][1].title,
        note="",
        against=against if compared else None,
        points=tuple(points),
    )


def _to_first(entry: ReportEntry, base: ReportEntry | None) -> float | None:
    """Return the value relative to the first night, better above 1."""
    if base is None or entry.value is None or base.value is None or entry.metric is None:
        return None
    if entry.metric != base.metric or not entry.value.mean or not base.value.mean:
        return None
    return relative(entry.value.mean, base.value.mean, entry.metric.better)


def _steps(lines: Sequence[HistoryLine]) -> list[HistoryChange]:
    """Return the changes, each once with the lines that it holds for, the latest night first."""
    points = [(line, point) for line in lines for point in line.points[1:]]
    titles_by_night = grouped((point.night, line.name) for line, point in points)
    holds = grouped(
        ((point.night, change.text), line.name)
        for line, point in points
        for change in point.changes
    )
    changes = [
        HistoryChange(
            night=night,
            text=text,
            titles=tuple(dict.fromkeys(titles)),
            every=set(titles) == set(titles_by_night[night]),
        )
        for (night, text), titles in holds.items()
    ]
    return sorted(changes, key=lambda step: (-step.night.toordinal(), -len(step.titles), step.text))


def _faults(lines: Sequence[HistoryLine]) -> list[HistoryFault]:
    """Return the wrong losses and memories of all lines, the latest night first."""
    faults = [
        HistoryFault(night=point.night, title=line.name, text=text)
        for line in lines
        for point in line.points
        for text in point.entry.result.verdict.faults
    ]
    return sorted(faults, key=lambda fault: (-fault.night.toordinal(), fault.title))


def _shifts(lines: Sequence[HistoryLine]) -> list[HistoryShift]:
    """Return the lasting changes of speed of all lines."""
    shifts = []
    for line in lines:
        measured = [(point, point.ratio) for point in line.points if point.ratio]
        for level in change_points([ratio for _, ratio in measured], _LEAST_CHANGE):
            point, _ = measured[level.index]
            shifts.append(
                HistoryShift(
                    title=line.name,
                    night=point.night,
                    level=level,
                    changes=tuple(change.text for change in point.changes),
                )
            )
    return sorted(
        shifts, key=lambda shift: (-shift.night.toordinal(), shift.level.moved, shift.title)
    )
