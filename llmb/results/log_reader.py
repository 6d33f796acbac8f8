# SPDX-License-Identifier: Apache-2.0
"""How the log of a run is read: which lines are steps, what these measure, and what verdicts are about."""

from dataclasses import dataclass, field, replace

from llmb.logs.formats import ParseSpec
from llmb.stats.metrics import STEP_TIME, MetricSpec
from llmb.workload.spec import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReader:
    """``spec``: its step lines; ``metrics``: those that the workload declares, without those of training.

    ``headline``: the name of the metric that verdicts are about.
    """

    spec: ParseSpec = field(default_factory=ParseSpec)
    metrics: tuple[MetricSpec, ...] = ()
    headline: str = STEP_TIME


def reader_of(workload: Workload, size: str | None, spec: ParseSpec | None) -> LogReader:
    """The reader of a run of ``workload``, whose plugin says ``spec`` (None: nothing); ``size``: None if unknown."""
    chosen = workload.all_metrics(size if size in workload.sizes else workload.default_size)
    own = tuple(one for one in chosen if one in workload.metrics)
    spec, names = spec or ParseSpec(), tuple(one.name for one in own)
    units = {one.name: one.unit for one in own if one.unit}
    if (spec.metrics, spec.metric_units) != (names, units):
        spec = replace(spec, metrics=names, metric_units=units)
    return LogReader(spec=spec, metrics=own, headline=chosen[0].name)
