# SPDX-License-Identifier: Apache-2.0
"""A report over time as Markdown: the ratios of each configuration by night, and what changed. Pure."""

from llmb.report.history import History, Line, Point
from llmb.report.history_page import headline_of
from llmb.report.markdown import compared_with
from llmb.report.value import Report
from llmb.text.tables import Column, as_markdown, render

_MOST_NIGHTS = 8  # columns


def history_markdown(report: Report, history: History) -> str:
    """The history of a report's runs as Markdown."""
    day = report.made.strftime("%Y-%m-%d %H:%M")
    made = f"Made by llmb {report.llmb_version} on {day}; a night is from noon to noon."
    parts = [f"# {as_markdown(report.title)}, by night", as_markdown(made), as_markdown(compared_with(report))]
    parts += [as_markdown(headline_of(history))]
    if history.lines:
        parts += ["## Ratios by night", _table(history)]
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
    return render(columns, [_row(line) for line in history.lines], "md")


def _row(line: Line) -> dict[str, object]:
    cells: dict[str, list[str]] = {}
    for point in line.points:
        cells.setdefault(str(point.night), []).append(_cell(point))
    row: dict[str, object] = {
        "configuration": ", ".join(filter(None, (line.title, line.note))),
        "change": f"{100 * line.moved:+.1f}" if len(line.measured) > 1 else None,
        "against": line.against.as_ if line.against else f"{line.measured[0].night}" if line.measured else None,
    }
    return row | {night: ", ".join(texts) for night, texts in cells.items()}


def _cell(point: Point) -> str:
    return point.word if point.ratio is None else f"{point.ratio:.3f} {point.word}"


def _steps(history: History) -> list[str]:
    lines = []
    for step in history.steps:
        where = "all configurations of that night" if step.every else "; ".join(step.titles)
        lines.append(f"- {step.night}: {as_markdown(step.text)} ({as_markdown(where)})")
    return lines
