# SPDX-License-Identifier: Apache-2.0
"""A report over time as one HTML page: a picture for each configuration, with what changed between nights. Pure."""

from llmb.report.history import History
from llmb.report.pictures import with_pictures
from llmb.report.rendering import first, render
from llmb.report.svg.over_time import history_picture
from llmb.report.value import Report, count

PICTURES = 120
STEPS = 200
LINES = 300
RECENT = 60  # nights of one picture


def headline_of(history: History) -> str:
    """What the latest night shows, in a sentence."""
    if not history.nights:
        return "There are no runs yet."
    if len(history.nights) == 1:
        return "One night; a second one shows what changes."
    fallen = history.fallen
    if not fallen:
        return f"No configuration fell by 1 % or more in the latest of {len(history.nights)} nights."
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
        "steps": first(history.steps, STEPS),
        "pictures": with_pictures(
            history.lines, PICTURES, lambda number, own: history_picture(f"history-{number}", own, recent)
        ),
        "lines": first(history.lines, LINES),
        "count": count,
        "against": report.against,
    }
    return render("history.html", values, report=report)
