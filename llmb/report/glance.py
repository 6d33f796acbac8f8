# SPDX-License-Identifier: Apache-2.0
"""The list at the top of a report: each configuration with its verdict, its figure and the cause. Pure.

Configurations with the same verdict and the same cause are one item, so that an explanation is there once.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from llmb.report.entries import Entry
from llmb.report.explanations import remarkable
from llmb.report.figures import Figures
from llmb.report.value import NEEDS_ATTENTION, Report, Run, count
from llmb.results.result import CANCELLED, FAILED, UNKNOWN
from llmb.verdict.judge import FAIL

LINES = 8  # configurations of one item
_NO_CAUSE = "no clock, power limit, driver, network or node in its log differs from the runs that pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A configuration: ``what`` it is, its ratio or else its ``value``, and the section of the page with details."""

    what: str
    value: str
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Configurations with the same verdict or status for the same reason: ``why``, and how to fix it.

    ``lines``: at most LINES of these ``total``.
    """

    word: str
    lines: tuple[Line, ...]
    total: int
    why: str = ""
    fix: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether it needs attention."""
        return self.word in NEEDS_ATTENTION or self.word in _ENDED_BADLY


_ENDED_BADLY = frozenset({FAILED, CANCELLED, UNKNOWN})


def glance(report: Report, entries: Sequence[Entry], explained: Sequence[Entry], figures: Figures) -> list[Item]:
    """The items of a report, in the order of the entries; ``explained``: the entries with a section of the page."""
    groups: dict[Hashable, list[Entry]] = {}
    for number, entry in enumerate(entries):
        groups.setdefault((entry.word, _shared(entry, number)), []).append(entry)
    return [_item(report, group, explained, figures) for group in groups.values()]


def _shared(entry: Entry, number: int) -> Hashable:
    """What entries of one item have in common: causes, kinds of failures, or that nothing needs to be explained."""
    if entry.word in NEEDS_ATTENTION:
        return tuple(cause.text for cause in entry.causes) or number
    return entry.reason if entry.word in _ENDED_BADLY else None


def _item(report: Report, group: Sequence[Entry], explained: Sequence[Entry], figures: Figures) -> Item:
    first = group[0]
    lines = tuple(
        Line(what=_what(one), value=_value(one, figures), anchor=_anchor(report, one, explained))
        for one in group[:LINES]
    )
    fix = next((run.cause.fix for run in first.runs if run.cause is not None), "")
    return Item(word=first.word, lines=lines, total=len(group), why=_why(first), fix=sentence(fix))


def _what(entry: Entry) -> str:
    runs = f", {count(len(entry.runs), 'run')}" if len(entry.runs) > 1 and entry.ratio is None else ""
    return f"{entry.title}{runs}" + (f" ({entry.note})" if entry.note else "")


def _value(entry: Entry, figures: Figures) -> str:
    if entry.ratio is not None:
        return f"{entry.ratio:.3f}"
    return "" if entry.value is None else figures.with_unit(entry.metric, entry.value.mean)


def _anchor(report: Report, entry: Entry, explained: Sequence[Entry]) -> str:
    if entry in explained:
        return f"why-{explained.index(entry) + 1}"
    names = {_named(run) for run in entry.runs}
    groups = (number for number, group in enumerate(report.failures, 1) if names & set(group.runs))
    return next((f"failure-{number}" for number in groups), "results")


def _named(run: Run) -> str:
    return f"{run.id} {run.job.experiment_name}"


def _why(entry: Entry) -> str:
    """The causes; where there are none, the reason and what its runs show."""
    if entry.word in NEEDS_ATTENTION:
        if entry.causes:
            return sentence("; ".join(cause.text for cause in entry.causes))
        seen = remarkable(entry)[:2]
        if entry.word == FAIL and not seen:
            seen = [sentence(_NO_CAUSE)] if _has_conditions(entry) else ["Its log names no clock, driver or network."]
        return " ".join([sentence(entry.reason), *seen])
    return sentence(entry.reason) if entry.word in _ENDED_BADLY else ""


def _has_conditions(entry: Entry) -> bool:
    log = entry.result.log
    return log is not None and bool(log.max_sm_clock_mhz or log.drivers or log.networks)


def sentence(text: str) -> str:
    """The text as a sentence, with a capital unless it begins with a command."""
    if not text:
        return text
    begun = text if text.startswith(("llmb-", "srun ")) else text[0].upper() + text[1:]
    return begun if begun.endswith(".") else f"{begun}."
