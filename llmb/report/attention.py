# SPDX-License-Identifier: Apache-2.0
"""What asks for a look, the worst first: one line for each configuration and for each cause of failures. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmb.report.entries import Entry
from llmb.report.headline import count
from llmb.report.value import Report
from llmb.report.why import remarkable
from llmb.report.words import ASKING, ORDER, word_of_group


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something to look at: its ``word``, ``what`` it is, ``why``, and the part of the page that has more on it."""

    word: str
    what: str
    why: str
    anchor: str


def attention(report: Report, entries: Sequence[Entry], explained: Sequence[Entry]) -> list[Item]:
    """The items of a report; ``explained`` are the entries that have a part of their own on the page."""
    items = [_of_entry(entry, explained) for entry in entries if entry.word in ASKING]
    for number, group in enumerate(report.failures, 1):
        what = f"{group.cause.kind}, {count(len(group.runs), 'run')}"
        items.append(
            Item(
                word=word_of_group(group),
                what=what,
                why=sentence(group.cause.fix or group.cause.line),
                anchor=f"failure-{number}",
            )
        )
    return sorted(items, key=lambda item: ORDER.index(item.word))


def _of_entry(entry: Entry, explained: Sequence[Entry]) -> Item:
    anchor = f"why-{explained.index(entry) + 1}" if entry in explained else "results"
    runs = f", {count(len(entry.runs), 'run')}" if len(entry.runs) > 1 and entry.ratio is None else ""
    what = f"{entry.label}, {count(entry.job.scale, 'GPU')}{runs}"
    why = " ".join([sentence(entry.reason), *remarkable(entry)[:2]])
    return Item(word=entry.word, what=f"{what} ({entry.note})" if entry.note else what, why=why, anchor=anchor)


def sentence(text: str) -> str:
    """The text with a capital at its start, unless a command stands there, and a point at its end."""
    if not text:
        return text
    begun = text if text.startswith(("llmb-", "srun ")) else text[0].upper() + text[1:]
    return begun if begun.endswith(".") else f"{begun}."
