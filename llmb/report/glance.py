# SPDX-License-Identifier: Apache-2.0
"""The headline of a report, and the list below it: each configuration with verdict, figure and cause. Pure.

Also how the page writes the values of metrics, and what its headings and texts call them.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from llmb.report.entries import Entry
from llmb.report.explanations import Explanation, remarkable
from llmb.report.value import NEEDS_ATTENTION, ORDER, PUBLISHED, Against, Report, Run, count
from llmb.results.result import CANCELLED, FAILED, PENDING, RUNNING, UNKNOWN
from llmb.stats.metrics import STEP_TIME, TRAINING_BY_NAME, MetricSpec, heading, shown
from llmb.verdict.judge import FAIL, INCONCLUSIVE, INVALID, SUSPICIOUS, WARN
from llmb.verdict.reference import metric_of, pooled

_TIME = TRAINING_BY_NAME[STEP_TIME]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The values of a page: where all are of one metric, its heading has the unit, else each value has its own.

    ``metrics``: what its entries measured; ``train``: whether any run trains a model; ``only_train``: whether all do.
    """

    metrics: frozenset[MetricSpec]
    train: bool = True
    only_train: bool = True
    against: Against = PUBLISHED

    @classmethod
    def of(cls, entries: Iterable[Entry], runs: Sequence[Run], against: Against = PUBLISHED) -> Self:
        """Those of a report; one without runs is about training."""
        training = [run.job.training is not None for run in runs]
        metrics = frozenset(metric for entry in entries if (metric := entry.metric) is not None)
        return cls(metrics=metrics, train=any(training) or not runs, only_train=all(training), against=against)

    @property
    def measured(self) -> str:
        """The heading of what was measured."""
        return "Step time (s)" if self.metrics <= {_TIME} else heading(self.metrics, "Measured")

    @property
    def published(self) -> str:
        """The heading of what is compared with."""
        return f"{self.against.heading} (s)" if self.metrics <= {_TIME} else self.against.heading

    @property
    def mean(self) -> str:
        """The heading of the mean of repeats."""
        return "Mean (s)" if self.metrics <= {_TIME} else "Mean"

    @property
    def steps(self) -> str:
        """The heading of the charts of steps."""
        return "Step times" if self.only_train else "Steps"

    def text(self, metric: MetricSpec | None, value: float) -> str:
        return _in_words(metric, value, with_unit=self.mixed)

    @property
    def mixed(self) -> bool:
        """Whether the values are of several metrics, so that each needs the name of its own."""
        return len(self.metrics) > 1

    @staticmethod
    def with_unit(metric: MetricSpec | None, value: float) -> str:
        """A value with its unit, whatever the headings say."""
        return _in_words(metric, value, with_unit=True)

    def reference(self, entry: Entry) -> str:
        """The published figure of an entry; always with its unit where it is of another metric than was measured."""
        reference, metric = entry.result.verdict.reference, entry.metric
        if reference is None:
            return ""
        if metric is not None and metric.name == reference.metric:
            return self.text(metric, reference.value)
        return shown(reference.value, reference.unit)


def instead(why: Explanation) -> str:
    """What was measured and what it is compared with, as ``2.779 s instead of 2.661``."""
    metric = metric_of(why.entry.result, why.reference.metric)
    own = pooled((run.result for run in why.entry.runs), metric.name)
    words = "" if own is None else _in_words(metric, own.mean, with_unit=True)
    return f"{words} instead of {_in_words(metric, why.reference.value, with_unit=False)}"


def metric_of_steps(run: Run) -> MetricSpec:
    """What the chart of a run's steps shows: its headline metric, whose unit is unknown where nothing was measured."""
    own = run.result.metrics
    if own.value is not None:
        return metric_of(run.result)
    return TRAINING_BY_NAME.get(own.headline, MetricSpec(name=own.headline))


def _in_words(metric: MetricSpec | None, value: float, *, with_unit: bool) -> str:
    """A value for people; a step time has three decimals."""
    text = f"{value:,.3f}" if metric == _TIME else shown(value)
    return f"{text} {metric.unit}".strip() if with_unit and metric is not None else text


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
    """The items of a report, in the order of the entries; ``explained``: the entries with a section of the page.

    Configurations with the same verdict and the same cause are one item, so that an explanation is there once.
    """
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
    names = {f"{run.id} {run.job.experiment_name}" for run in entry.runs}
    groups = (number for number, group in enumerate(report.failures, 1) if names & set(group.runs))
    return next((f"failure-{number}" for number in groups), "results")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The ``sentence``, the ``details`` behind it, and the runs with each verdict or status, the worst one first."""

    sentence: str
    details: tuple[str, ...]
    tally: tuple[tuple[str, int], ...]


def headline(entries: Sequence[Entry], against: Against = PUBLISHED) -> Headline:
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
