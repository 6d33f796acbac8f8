# SPDX-License-Identifier: Apache-2.0
"""The headline of a report. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from llmb.report.entries import Entry
from llmb.report.value import ORDER, PUBLISHED, Against, count
from llmb.results.result import CANCELLED, FAILED, PENDING, RUNNING, UNKNOWN
from llmb.verdict.judge import FAIL, INCONCLUSIVE, INVALID, SUSPICIOUS, WARN


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The ``sentence``, the ``details`` behind it, and the runs with each verdict or status, the worst one first."""

    sentence: str
    details: tuple[str, ...]
    tally: tuple[tuple[str, int], ...]


def headline(entries: Sequence[Entry], against: Against = PUBLISHED) -> Headline:
    """The headline of a report with these entries, which are compared with ``against``."""
    counts = Counter(entry.word for entry in entries for _ in entry.runs)
    tally = tuple((word, counts[word]) for word in (*ORDER, *sorted(set(counts) - set(ORDER))) if counts[word])
    return Headline(
        sentence=_sentence(entries, counts, against), details=tuple(_details(entries, counts, against)), tally=tally
    )


def _sentence(entries: Sequence[Entry], counts: Counter[str], against: Against) -> str:
    if not entries:
        return "There are no runs yet."
    total = counts.total()
    compared = sum(entry.ratio is not None for entry in entries)
    slow = sum(entry.word == FAIL for entry in entries)
    wrong = []
    if slow:
        wrong.append(f"{slow} of {count(compared, 'compared configuration')} {_is(slow)} worse than {against.as_}")
    if counts[FAILED]:
        wrong.append(f"{counts[FAILED]} of {count(total, 'run')} failed")
    if counts[INVALID]:
        wrong.append(f"{count(counts[INVALID], 'run')} {_is(counts[INVALID])} invalid")
    if wrong:
        return f"{', '.join(wrong[:-1])}{' and ' if wrong[:-1] else ''}{wrong[-1]}."
    if not compared:
        nothing = "nothing is published" if against.is_published else f"{against.as_} has nothing"
        return f"{count(total, 'run')}; {nothing} to compare {'it' if total == 1 else 'them'} with."
    if any(entry.word in (WARN, INCONCLUSIVE) for entry in entries):
        return f"No configuration is certainly worse than {against.as_}; {count(compared, 'configuration')} compared."
    if compared == 1:
        return f"The one compared configuration reaches {against.figures}."
    return f"All {compared} compared configurations reach {against.figures}."


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _details(entries: Sequence[Entry], counts: Counter[str], against: Against) -> list[str]:
    ratios = [entry.ratio for entry in entries if entry.ratio is not None]
    found = []
    if len(ratios) > 1:
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        span = f"from {min(ratios):.3f} to {max(ratios):.3f}"
        found.append(f"On average a configuration reaches {mean:.3f} of {against.figure}, {span}.")
    elif ratios:
        found.append(f"It reaches {ratios[0]:.3f} of {against.figure}.")
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
