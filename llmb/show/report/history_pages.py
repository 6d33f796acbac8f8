# SPDX-License-Identifier: Apache-2.0
"""A report over time as Markdown and as one HTML page: ratios by night, and what changed. Pure."""

from llmb.core.tables import Column, as_markdown, render as render_table
from llmb.show.report.history import History, HistoryLine, HistoryShift
from llmb.show.report.markdown import compared_with
from llmb.show.report.page import with_pictures
from llmb.show.report.rendering import first, render
from llmb.show.report.svg.over_time import history_picture
from llmb.show.report.value import Report, count

PICTURES = 120
STEPS = 200
LINES = 300
RECENT = 60  # nights of one picture


def headline_of(history: History) -> str:
    """Return sentences about the latest night."""
    faulty = {fault.title for fault in history.latest_faults}
    if not faulty:
        return _of_speed(history)
    number = f"{count(len(faulty), 'configuration')} {'has' if len(faulty) == 1 else 'have'}"
    return f"{_of_speed(history)} {number} a wrong loss or peak memory in that night."


def _of_speed(history: History) -> str:
    if not history.nights:
        return "There are no runs yet."
    if len(history.nights) == 1:
        return "One night; a second one shows what changes."
    fallen = history.fallen
    if not fallen:
        return (
            f"No configuration fell by 1 % or more in the latest of {len(history.nights)} nights."
        )
    worst = fallen[0]
    number = count(len(fallen), "configuration")
    return f"{number} fell in the latest night, {worst.title} most: {100 * worst.moved:+.1f} %."


def history_html(report: Report, history: History) -> str:
    """The page of a report over time."""
    recent = history.nights[-RECENT:]
    values = {
        "title": f"{report.title}, by night",
        "made": report.made.strftime("%Y-%m-%d %H:%M %Z"),
        "headline": headline_of(history),
        "history": history,
        "recent": recent,
        "shifts": first(history.shifts, STEPS),
        "level_in_words": level_in_words,
        "faults": first(history.faults, STEPS),
        "steps": first(history.steps, STEPS),
        "pictures": with_pictures(
            history.lines,
            PICTURES,
            lambda number, line: history_picture(f"history-{number}", line, recent),
        ),
        "lines": first(history.lines, LINES),
        "count": count,
        "against": report.against,
    }
    return render("history.html", values, report=report)


_MOST_NIGHTS = 8  # columns


def history_markdown(report: Report, history: History) -> str:
    """The history of a report's runs as Markdown."""
    day = report.made.strftime("%Y-%m-%d %H:%M")
    made_by = f"Made by llmb {report.llmb_version} on {day}; a night is from noon to noon."
    parts = [
        f"# {as_markdown(report.title)}, by night",
        as_markdown(made_by),
        as_markdown(compared_with(report)),
    ]
    parts += [as_markdown(headline_of(history))]
    if history.lines:
        parts += ["## Ratios by night", _table(history)]
    if history.faults:
        faults = [
            f"- {fault.night}: {as_markdown(f'{fault.title}: {fault.text}')}"
            for fault in history.faults
        ]
        parts += ["## Wrong loss or memory", "\n".join(faults)]
    if history.shifts:
        parts += ["## When the speed changed", "\n".join(map(_shift, history.shifts))]
    if history.steps:
        parts += ["## What changed", "\n".join(_steps(history))]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _table(history: History) -> str:
    nights = history.nights[-_MOST_NIGHTS:]
    columns = [
        Column(key="configuration"),
        *(Column(key=str(night), right=True) for night in nights),
        Column(key="change", heading="change %", right=True),
        Column(key="against"),
    ]
    return render_table(columns, [_row(line) for line in history.lines], "md")


def _row(line: HistoryLine) -> dict[str, object]:
    cells: dict[str, list[str]] = {}
    for point in line.points:
        cells.setdefault(str(point.night), []).append(point.text)
    row: dict[str, object] = {
        "configuration": line.name,
        "change": f"{100 * line.moved:+.1f}" if len(line.measured) > 1 else None,
        "against": line.against.as_
        if line.against
        else f"{line.measured[0].night}"
        if line.measured
        else None,
    }
    return row | {night: ", ".join(texts) for night, texts in cells.items()}


def level_in_words(shift: HistoryShift) -> str:
    """Return ``-4.5 %: 0.958 in 3 nights, after 1.003 in 12``."""
    level = shift.level
    before, after = level.counts
    return (
        f"{100 * level.moved:+.1f} %: {level.after:.3f} in {after} nights,"
        f" after {level.before:.3f} in {before}"
    )


def _shift(shift: HistoryShift) -> str:
    changes = "; ".join(shift.changes) or "records and logs show no other change"
    return f"- {shift.night}: {as_markdown(f'{shift.title} {level_in_words(shift)} ({changes})')}"


def _steps(history: History) -> list[str]:
    lines = []
    for step in history.steps:
        scope = "all configurations of that night" if step.every else "; ".join(step.titles)
        lines.append(f"- {step.night}: {as_markdown(step.text)} ({as_markdown(scope)})")
    return lines
