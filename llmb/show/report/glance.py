# SPDX-License-Identifier: Apache-2.0
"""The headline of a report, and the list of configurations with verdict, figure and cause. Pure.

Also how the page writes the values of metrics, and its headings and texts.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Self

from llmb.contract.metrics import STEP_TIME, TRAINING_BY_NAME, MetricSpec, heading, shown
from llmb.core.names import listed
from llmb.core.node_lists import fold
from llmb.core.values import dataclass
from llmb.judge import far_runs
from llmb.judge.reference import metric_of, pooled
from llmb.judge.value import (
    FAIL,
    INCONCLUSIVE,
    INVALID,
    SUSPICIOUS,
    WARN,
    ratio_in_digits,
)
from llmb.measure.result import (
    CANCELLED,
    FAILED,
    LOSS,
    PEAK_MEMORY,
    PENDING,
    RUNNING,
    UNKNOWN,
)
from llmb.show.report.conditions import span
from llmb.show.report.entries import ReportEntry
from llmb.show.report.explanations import Explanation, remarkable
from llmb.show.report.value import NEEDS_ATTENTION, ORDER, PUBLISHED, Against, Report, Run, count

_TIME = TRAINING_BY_NAME[STEP_TIME]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageValues:
    """The values of a page.

    If all are of one metric, its heading has the unit, else each value has its own.
    """

    #: Of its entries.
    metrics: frozenset[MetricSpec]
    #: Some run trains a model.
    train: bool = True
    #: All runs train a model.
    only_train: bool = True
    against: Against = PUBLISHED

    @classmethod
    def of(
        cls, entries: Iterable[ReportEntry], runs: Sequence[Run], against: Against = PUBLISHED
    ) -> Self:
        """Return the figures of a report. A report without runs is about training."""
        training = [run.job.training is not None for run in runs]
        metrics = frozenset(metric for entry in entries if (metric := entry.metric) is not None)
        return cls(
            metrics=metrics,
            train=any(training) or not runs,
            only_train=all(training),
            against=against,
        )

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
        """Return True for several metrics, so that each value needs the name of its own."""
        return len(self.metrics) > 1

    @staticmethod
    def with_unit(metric: MetricSpec | None, value: float) -> str:
        """A value with its unit, whatever the headings say."""
        return _in_words(metric, value, with_unit=True)

    def reference(self, entry: ReportEntry) -> str:
        """Return the published figure, with its unit if it is of another metric than measured."""
        reference, metric = entry.result.verdict.reference, entry.metric
        if reference is None:
            return ""
        if metric is not None and metric.name == reference.metric:
            return self.text(metric, reference.value)
        return shown(reference.value, reference.unit)


def instead(explanation: Explanation) -> str:
    """Return the measured and the reference value, as ``2.779 s instead of 2.661``."""
    metric = metric_of(explanation.entry.result, explanation.reference.metric)
    spread = pooled((run.result for run in explanation.entry.runs), metric.name)
    words = "" if spread is None else _in_words(metric, spread.mean, with_unit=True)
    return f"{words} instead of {_in_words(metric, explanation.reference.value, with_unit=False)}"


def metric_of_steps(run: Run) -> MetricSpec:
    """Return the metric of a run's chart: its headline, without unit if nothing was measured."""
    metrics = run.result.metrics
    if metrics.value is not None:
        return metric_of(run.result)
    return TRAINING_BY_NAME.get(metrics.headline, MetricSpec(name=metrics.headline))


def _in_words(metric: MetricSpec | None, value: float, *, with_unit: bool) -> str:
    """Return a value for people. A step time has three decimals."""
    text = f"{value:,.3f}" if metric == _TIME else shown(value)
    return f"{text} {metric.unit}".strip() if with_unit and metric is not None else text


LINES = 8  # configurations of one item
_NAMED_DIFFERENCES = 3
_NO_CAUSE = (
    "no clock, power limit, driver, network or node in its log differs from the runs that pass"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlanceLine:
    """A configuration with its ratio or else ``value``, and the page's section about it."""

    what: str
    value: str
    anchor: str
    #: What it costs and the nodes that it ran on, if it is certainly slow.
    cost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlanceItem:
    """Configurations with the same verdict or status for the same reason, and how to fix it."""

    word: str
    #: At most LINES of these ``total``.
    lines: tuple[GlanceLine, ...]
    total: int
    why: str = ""
    fix: str = ""

    @property
    def is_bad(self) -> bool:
        """Return True if it needs attention."""
        return self.word in NEEDS_ATTENTION or self.word in _ENDED_BADLY


_ENDED_BADLY = frozenset({FAILED, CANCELLED, UNKNOWN})


def glance(
    report: Report,
    entries: Sequence[ReportEntry],
    explained: Sequence[ReportEntry],
    figures: PageValues,
) -> list[GlanceItem]:
    """Return the items of a report, in the order of the entries.

    ``explained``: the entries with a section of the page. Configurations with the same verdict and
    the same cause are one item, so that an explanation is there once.
    """
    groups: dict[Hashable, list[ReportEntry]] = {}
    for number, entry in enumerate(entries):
        groups.setdefault((entry.word, _shared(entry, number)), []).append(entry)
    return [_item(report, group, explained, figures) for group in groups.values()]


def _shared(entry: ReportEntry, number: int) -> Hashable:
    """Return what entries of one item share: causes, kinds of failures, or nothing to explain."""
    if entry.word in NEEDS_ATTENTION:
        return entry.result.verdict.why or number
    return entry.reason if entry.word in _ENDED_BADLY else None


def _item(
    report: Report,
    group: Sequence[ReportEntry],
    explained: Sequence[ReportEntry],
    figures: PageValues,
) -> GlanceItem:
    first = group[0]
    lines = tuple(
        GlanceLine(
            what=_name_of(entry),
            value=_value(entry, figures),
            anchor=_anchor(report, entry, explained),
            cost=_cost(entry),
        )
        for entry in group[:LINES]
    )
    fix = next((run.cause.fix for run in first.runs if run.cause is not None), "")
    return GlanceItem(
        word=first.word, lines=lines, total=len(group), why=_reason_of(first), fix=sentence(fix)
    )


def _name_of(entry: ReportEntry) -> str:
    runs = (
        f", {count(len(entry.runs), 'run')}" if len(entry.runs) > 1 and entry.ratio is None else ""
    )
    return f"{entry.title}{runs}" + (f" ({entry.note})" if entry.note else "")


def _value(entry: ReportEntry, figures: PageValues) -> str:
    if entry.ratio is not None:
        return percent(entry.ratio_text)
    return "" if entry.value is None else figures.with_unit(entry.metric, entry.value.mean)


def percent(ratio: str) -> str:
    """Return the text of a ratio as people say it, in the same digits: ``90.0 %``."""
    return f"{float(ratio):.{len(ratio.partition('.')[2]) - 2}%}".replace("%", " %")


def _cost(entry: ReportEntry) -> str:
    if not entry.cost:
        return ""
    return f"{entry.cost}, on {fold(entry.hosts)}" if entry.hosts else entry.cost


def one_line(report: Report, entries: Sequence[ReportEntry]) -> str:
    """Return the report as a line to paste: what is wrong, the worst configuration, its cause."""
    top = headline(entries, report.against).sentence
    days = span(report) or f"{report.made:%Y-%m-%d}"
    parts = [f"{report.cluster_name}, {days}: {top}"]
    worst = next((entry for entry in entries if entry.word == FAIL and entry.ratio), None)
    if worst is not None:
        speed = f"{percent(worst.ratio_text)} of {report.against.figure}" if worst.is_slow else ""
        facts = [speed, _cost(worst)]
        facts += worst.result.verdict.why[:1]
        parts.append(f"Worst: {worst.title}: {'; '.join(filter(None, facts))}.")
    return " ".join(parts)


def _anchor(report: Report, entry: ReportEntry, explained: Sequence[ReportEntry]) -> str:
    if entry in explained:
        return f"why-{explained.index(entry) + 1}"
    names = {f"{run.id} {run.job.experiment_name}" for run in entry.runs}
    groups = (number for number, group in enumerate(report.failures, 1) if names & set(group.runs))
    return next((f"failure-{number}" for number in groups), "results")


def _reason_of(entry: ReportEntry) -> str:
    """Return the causes, or else the reason and the remarks on its runs."""
    if entry.word in NEEDS_ATTENTION:
        if entry.causes:
            return sentence("; ".join(entry.result.verdict.why))
        notes = _known_differences(entry) or remarkable(entry)[:2]
        if entry.is_slow and not notes:
            notes = (
                [sentence(_NO_CAUSE)]
                if _has_conditions(entry)
                else ["Its log names no clock, driver or network."]
            )
        return " ".join([sentence(entry.reason), *notes])
    return sentence(entry.reason) if entry.word in _ENDED_BADLY else ""


def _known_differences(entry: ReportEntry) -> list[str]:
    """Return the differences from the runs of a baseline as a sentence, if there are any."""
    known = entry.result.verdict.differences
    if entry.runs[0].figure is not None or not known:
        return []
    return [sentence(f"known differences: {'; '.join(known[:_NAMED_DIFFERENCES])}")]


def _has_conditions(entry: ReportEntry) -> bool:
    log = entry.result.log
    return log is not None and bool(log.sm_clock_mhz or log.drivers or log.networks)


def sentence(text: str) -> str:
    """The text as a sentence, with a capital unless it begins with a command."""
    if not text:
        return text
    begun = text if text.startswith(("llmb-", "srun ")) else text[0].upper() + text[1:]
    return begun if begun.endswith(".") else f"{begun}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The ``sentence``, the ``details`` behind it, and how many configurations have each verdict
    or status, the worst first.

    A configuration of which some repeats failed has two.
    """

    sentence: str
    details: tuple[str, ...]
    tally: tuple[tuple[str, int], ...]


def headline(entries: Sequence[ReportEntry], against: Against = PUBLISHED) -> Headline:
    counts = Counter(entry.word for entry in entries for _ in entry.runs)
    words = Counter(entry.word for entry in entries)
    tally = tuple(
        (word, words[word]) for word in (*ORDER, *sorted(set(words) - set(ORDER))) if words[word]
    )
    faults = _faults(entries, counts, against)
    sentence = _joined(faults) if faults else _without_faults(entries, counts, against)
    details = _details(entries, counts, against)
    too_good = _joined([*_too_good(entries)])
    if too_good and faults:
        details.append(f"{too_good}.")
    elif too_good:
        sentence += f"; {too_good}"
    return Headline(sentence=f"{sentence}.", details=tuple(details), tally=tally)


def _joined(texts: Sequence[str]) -> str:
    return f"{', '.join(texts[:-1])}{' and ' if texts[:-1] else ''}{''.join(texts[-1:])}"


def _too_good(entries: Sequence[ReportEntry]) -> Iterator[str]:
    """Yield how many configurations are SUSPICIOUS, by speed and by memory."""
    suspicious = [entry for entry in entries if entry.word == SUSPICIOUS]
    by_memory = sum(not entry.is_by_speed for entry in suspicious)
    if fast := len(suspicious) - by_memory:
        yield f"{count(fast, 'configuration')} {_is(fast)} implausibly good"
    if by_memory:
        number = count(by_memory, "configuration")
        yield f"{number} {_has(by_memory)} an implausibly low peak memory"


def _faults(entries: Sequence[ReportEntry], counts: Counter[str], against: Against) -> list[str]:
    """Return how many configurations are bad in which way, and how many runs failed."""
    compared = [entry for entry in entries if entry.ratio is not None]
    faults: list[str] = []
    for number, verb, what in (
        (sum(entry.is_slow for entry in entries), _is, f"worse than {against.as_}"),
        (sum(entry.fails_by(LOSS) for entry in entries), _has, "a wrong loss"),
        (sum(entry.fails_by(PEAK_MEMORY) for entry in entries), _has, "too high a peak memory"),
    ):
        if number:
            of_all = "" if faults else f" of {_rows_of(compared, 'compared ')}"
            faults.append(f"{number}{of_all} {verb(number)} {what}")
    if counts[FAILED]:
        faults.append(f"{counts[FAILED]} of {count(counts.total(), 'run')} failed")
    if counts[INVALID]:
        faults.append(f"{count(counts[INVALID], 'run')} {_is(counts[INVALID])} invalid")
    return faults


def _without_faults(entries: Sequence[ReportEntry], counts: Counter[str], against: Against) -> str:
    """Return the headline of entries of which none is bad, without its full stop."""
    if not entries:
        return "There are no runs yet"
    total = counts.total()
    compared = [entry for entry in entries if entry.ratio is not None]
    if not compared:
        nothing = "nothing is published" if against.is_published else f"{against.as_} has nothing"
        return f"{count(total, 'run')}; {nothing} to compare {'it' if total == 1 else 'them'} with"
    if slightly := sum(entry.word == WARN for entry in entries):
        rows = _rows_of(compared, "compared ")
        return f"{slightly} of {rows} {_is(slightly)} slightly worse than {against.as_}"
    if any(entry.word == INCONCLUSIVE for entry in entries):
        return (
            f"No configuration is certainly worse than {against.as_}; {_rows_of(compared)} compared"
        )
    if len(compared) == 1:
        return f"The one compared configuration reaches {against.figures}"
    return f"All {_rows_of(compared, 'compared ')} reach {against.figures}"


def _rows_of(entries: Sequence[ReportEntry], how: str = "") -> str:
    """Return ``9 configurations``, or ``12 rows of 9 configurations``: each session has its own.

    ``how`` they are, in front of the noun that is counted.
    """
    configurations = [entry.result.identity.configuration for entry in entries]
    keys = {setting.key if setting is not None else None for setting in configurations}
    if len(keys) == len(entries):
        return count(len(entries), f"{how}configuration")
    return f"{count(len(entries), f'{how}row')} of {count(len(keys), 'configuration')}"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


def _details(entries: Sequence[ReportEntry], counts: Counter[str], against: Against) -> list[str]:
    ratios = sorted((entry.ratio, entry.ratio_text) for entry in entries if entry.ratio is not None)
    details = []
    if len(ratios) > 1:
        mean = math.exp(math.fsum(math.log(ratio) for ratio, _ in ratios) / len(ratios))
        span = f"{percent(ratios[0][1])} to {percent(ratios[-1][1])}"
        average = percent(ratio_in_digits(mean))
        details.append(f"On average {average} of {against.figure} ({span}).")
    elif ratios:
        details.append(f"It reaches {percent(ratios[0][1])} of {against.figure}.")
    open_verdicts = [entry for entry in entries if entry.word == INCONCLUSIVE]
    far = [
        words
        for entry in open_verdicts
        if (words := far_runs.in_words([run.result for run in entry.runs]))
    ]
    if undecided := len(open_verdicts) - len(far):
        verb = "needs" if undecided == 1 else "need"
        details.append(f"{count(undecided, 'configuration')} {verb} more repeats.")
    if far:
        details.append(f"Not decided: {listed(far, _NAMED_DIFFERENCES, '; ')}.")
    if counts[CANCELLED]:
        details.append(
            f"{count(counts[CANCELLED], 'run')} {'was' if counts[CANCELLED] == 1 else 'were'}"
            " cancelled."
        )
    if counts[UNKNOWN]:
        unknown = counts[UNKNOWN]
        details.append(f"{count(unknown, 'run')} {_has(unknown)} an unknown result.")
    if going := counts[RUNNING] + counts[PENDING]:
        details.append(f"{count(going, 'run')} {_has(going)} not ended: this report is not final.")
    return details
