# SPDX-License-Identifier: Apache-2.0
"""How the page of a report formats values of metrics, and what it calls them. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from llmb.report.entries import Entry
from llmb.report.explanations import Explanation
from llmb.report.value import PUBLISHED, Against, Run
from llmb.stats.metrics import STEP_TIME, TRAINING_BY_NAME, MetricSpec, heading, shown
from llmb.verdict.ratio import metric_of, pooled

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
        """A value below these headings."""
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
