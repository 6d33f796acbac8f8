# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page that needs no network and no other file; each part is within its limit. Pure."""

import os
from collections.abc import Sequence
from typing import Any

from llmb.report.conditions import conditions_of, day
from llmb.report.entries import entries_of, families_of, worst_first
from llmb.report.explanations import explanations
from llmb.report.figures import Figures, instead
from llmb.report.glance import glance
from llmb.report.headline import headline
from llmb.report.markdown import missing, scaling_note
from llmb.report.pictures import CHARTS, axis_of, ratio_picture, repeat_pictures, step_pictures, with_pictures
from llmb.report.rendering import Markup, first, kind_of, render
from llmb.report.svg.scaling import scaling_picture
from llmb.report.svg.strips import ratio_scale, shares
from llmb.report.value import NEEDS_ATTENTION, Report, Run, count, word_of, word_of_group
from llmb.stats.metrics import heading, shown
from llmb.text.node_lists import fold

ENTRIES = 250
ITEMS = 20
CARDS = 24
FAMILIES = 24
FAILURES = 30
NAMED = 24  # runs of one failure
CONDITIONS = 150
RUNS = 500


def charted(report: Report) -> list[Run]:
    """The runs whose steps the page shows: of the worst entries, those with at least one step."""
    entries = entries_of(report.runs)
    started = [run for run in worst_first(entries, len(report.runs)) if run.result.metrics.max_iteration is not None]
    return started[:CHARTS]


def values(report: Report) -> dict[str, Any]:
    """The variables of the template."""
    entries, conditions = entries_of(report.runs), conditions_of(report)
    against = report.against
    top, axis = headline(entries, against), axis_of(entries)
    explained = [e for e in entries if e.word in NEEDS_ATTENTION and e.ratio is not None]
    cards = first(explained, CARDS)
    figures = Figures.of(entries, report.runs, against)
    runs = [(entry, run) for entry in entries for run in entry.runs]
    repeated = [entry for entry in entries if entry.value is not None and entry.value.n > 1]
    families = families_of(report)
    return {
        "title": report.title,
        "headline": top,
        "missing": missing(report),
        "unreadable": report.unreadable,
        "tally": Markup(shares("tally", [(word, kind_of(word), number) for word, number in top.tally])) if runs else "",
        "items": first(glance(report, entries, cards.items, figures), ITEMS),
        "entries": with_pictures(entries, ENTRIES, lambda i, entry: ratio_picture(axis, i, entry, against.figure)),
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
        "families": with_pictures(families, FAMILIES, lambda i, one: scaling_picture(f"scaling-{i}", one)),
        "scaling_note": scaling_note([point for one in families for point in one.points]),
        "repeats": repeat_pictures(repeated),
        "charts": step_pictures(runs),
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


def to_html(report: Report) -> str:
    """The report as HTML: the same text for the same report."""
    return render("page.html", values(report), report=report, meanings=report.against.meanings)
