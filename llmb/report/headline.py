# SPDX-License-Identifier: Apache-2.0
"""The top of a report: its headline, and what needs attention. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from llmb.report.conditions import remarkable
from llmb.report.entries import Entry
from llmb.report.value import NEEDS_ATTENTION, ORDER, Report, count, word_of_group
from llmb.results.result import CANCELLED, FAILED, PENDING, RUNNING, UNKNOWN
from llmb.verdict.judge import FAIL, INCONCLUSIVE, INVALID, SUSPICIOUS, WARN


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The ``sentence``, the ``details`` behind it, and the runs with each verdict or status, the worst one first."""

    sentence: str
    details: tuple[str, ...]
    tally: tuple[tuple[str, int], ...]


def headline(entries: Sequence[Entry]) -> Headline:
    """The headline of a report with these entries."""
    counts = Counter(entry.word for entry in entries for _ in entry.runs)
    tally = tuple((word, counts[word]) for word in (*ORDER, *sorted(set(counts) - set(ORDER))) if counts[word])
    return Headline(sentence=_sentence(entries, counts), details=tuple(_details(entries, counts)), tally=tally)


def _sentence(entries: Sequence[Entry], counts: Counter[str]) -> str:
    if not entries:
        return "There are no runs yet."
    total = counts.total()
    compared = sum(entry.ratio is not None for entry in entries)
    slow = sum(entry.word == FAIL for entry in entries)
    wrong = []
    if slow:
        wrong.append(f"{slow} of {count(compared, 'compared configuration')} {_is(slow)} clearly worse than published")
    if counts[FAILED]:
        wrong.append(f"{counts[FAILED]} of {count(total, 'run')} failed")
    if counts[INVALID]:
        wrong.append(f"{count(counts[INVALID], 'run')} {_is(counts[INVALID])} invalid")
    if wrong:
        return f"{', '.join(wrong[:-1])}{' and ' if wrong[:-1] else ''}{wrong[-1]}."
    if not compared:
        return f"{count(total, 'run')}; nothing is published to compare {'it' if total == 1 else 'them'} with."
    if any(entry.word in (WARN, INCONCLUSIVE) for entry in entries):
        return f"No configuration is clearly below the published figures; {count(compared, 'configuration')} compared."
    if compared == 1:
        return "The one compared configuration reaches the published figures."
    return f"All {compared} compared configurations reach the published figures."


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _details(entries: Sequence[Entry], counts: Counter[str]) -> list[str]:
    ratios = [entry.ratio for entry in entries if entry.ratio is not None]
    found = []
    if len(ratios) > 1:
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        span = f"from {min(ratios):.3f} to {max(ratios):.3f}"
        found.append(f"On average a configuration reaches {mean:.3f} of the published figure, {span}.")
    elif ratios:
        found.append(f"It reaches {ratios[0]:.3f} of the published figure.")
    open_ = sum(entry.word == INCONCLUSIVE for entry in entries)
    if open_:
        found.append(f"{count(open_, 'configuration')} {'needs' if open_ == 1 else 'need'} more repeats.")
    fast = sum(entry.word == SUSPICIOUS for entry in entries)
    if fast:
        found.append(f"{count(fast, 'configuration')} {_is(fast)} implausibly good.")
    if counts[CANCELLED]:
        found.append(f"{count(counts[CANCELLED], 'run')} {'was' if counts[CANCELLED] == 1 else 'were'} cancelled.")
    if counts[UNKNOWN]:
        verb = "has" if counts[UNKNOWN] == 1 else "have"
        found.append(f"{count(counts[UNKNOWN], 'run')} {verb} an unknown result.")
    if going := counts[RUNNING] + counts[PENDING]:
        found.append(f"{count(going, 'run')} {'has' if going == 1 else 'have'} not ended: this report is not final.")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that needs attention: its verdict or status, ``what`` it is, ``why``, and the section with details."""

    word: str
    what: str
    why: str
    anchor: str


def attention(report: Report, entries: Sequence[Entry], explained: Sequence[Entry]) -> list[Item]:
    """The items of a report; ``explained``: the entries that have a section of the page."""
    items = [_of_entry(entry, explained) for entry in entries if entry.word in NEEDS_ATTENTION]
    for number, group in enumerate(report.failures, 1):
        what = f"{group.cause.kind}, {count(len(group.runs), 'run')}"
        why = sentence(group.cause.fix or group.cause.line)
        items.append(Item(word=word_of_group(group), what=what, why=why, anchor=f"failure-{number}"))
    return sorted(items, key=lambda item: ORDER.index(item.word))


def _of_entry(entry: Entry, explained: Sequence[Entry]) -> Item:
    anchor = f"why-{explained.index(entry) + 1}" if entry in explained else "results"
    runs = f", {count(len(entry.runs), 'run')}" if len(entry.runs) > 1 and entry.ratio is None else ""
    what = f"{entry.label}, {count(entry.job.scale, 'GPU')}{runs}"
    why = " ".join([sentence(entry.reason), *remarkable(entry)[:2]])
    return Item(word=entry.word, what=f"{what} ({entry.note})" if entry.note else what, why=why, anchor=anchor)


def sentence(text: str) -> str:
    """The text as a sentence, with a capital unless it begins with a command."""
    if not text:
        return text
    begun = text if text.startswith(("llmb-", "srun ")) else text[0].upper() + text[1:]
    return begun if begun.endswith(".") else f"{begun}."
