# SPDX-License-Identifier: Apache-2.0
"""How the log of a run is read, as its plugin says, and kept beside the run when it is submitted.

It is apart from the reading itself, which a submission need not import.
"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import field, replace

from llmb.contract.failures import Failure
from llmb.contract.formats import ParseSpec
from llmb.contract.metrics import STEP_TIME, MetricSpec
from llmb.contract.record import RunRecord
from llmb.contract.spec import Workload
from llmb.core import files, typed
from llmb.core.values import dataclass
from llmb.errors import LlmbError

READER = "reader.json"
_VERSION, _SCHEMA_VERSION = "schema_version", 1
_READER, _METRICS_ALONE = "reader", "metrics"  # keys of the file


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReader:
    """A log's step lines and metrics, as a plugin and its workload describe them."""

    spec: ParseSpec = field(default_factory=ParseSpec)  #: of its step lines
    metrics: tuple[MetricSpec, ...] = ()  #: the workload's own, without metrics of training
    headline: str = STEP_TIME  #: the metric that verdicts are about
    failures: tuple[Failure, ...] = ()  #: causes of plugins, after llmb's own


OWN_READER = LogReader()  # of a log that llmb reads alone


def reader_of(
    workload: Workload,
    size: str | None,
    spec: ParseSpec | None,
    failures: Sequence[Failure] = (),
) -> LogReader:
    """Return the reader of a run of ``workload`` (``size`` None if unknown).

    ``spec`` is the plugin's, None if it has none. ``failures`` are the causes of all plugins, those
    of the workload come first.
    """
    chosen = workload.all_metrics(size if size in workload.sizes else workload.default_size)
    own_names = {metric.name for metric in workload.metrics}
    declared = tuple(metric for metric in chosen if metric.name in own_names)
    spec, names = spec or ParseSpec(), tuple(metric.name for metric in declared)
    units = {metric.name: metric.unit for metric in declared if metric.unit}
    if (spec.metrics, spec.metric_units) != (names, units):
        spec = replace(spec, metrics=names, metric_units=units)
    causes = (*workload.failures, *failures)
    return LogReader(spec=spec, metrics=declared, headline=chosen[0].name, failures=causes)


def as_submitted(reader: LogReader, submitted: LogReader) -> LogReader:
    """Return ``reader`` with the metrics of ``submitted``: an upgraded plugin may declare others.

    Unit, direction and limits of a metric, and the headline, are those of the submission. Metrics
    that are new since are read too. One that the plugin reads no more, perhaps as it has another
    name now, is omitted.
    """
    known_before = {metric.name: metric for metric in submitted.metrics}
    if not known_before or submitted.metrics == reader.metrics:
        return reader
    now = {metric.name for metric in reader.metrics}
    kept = [
        metric
        for metric in submitted.metrics
        if metric.name in (*now, submitted.headline) or _is_read(metric.name, reader, submitted)
    ]
    new = [metric for metric in reader.metrics if metric.name not in known_before]
    chosen = (*kept, *new)
    spec = replace(
        reader.spec,
        metrics=tuple(metric.name for metric in chosen),
        metric_units={metric.name: metric.unit for metric in chosen if metric.unit},
    )
    return replace(reader, spec=spec, metrics=chosen, headline=submitted.headline)


def _is_read(name: str, reader: LogReader, submitted: LogReader) -> bool:
    """Return True if ``reader`` may find a metric that only ``submitted`` declares.

    Without a key or a pattern of its own, a value is found by the metric's name.
    """
    if reader.spec.samples is not None:
        return False
    had_its_own = name in submitted.spec.keys or name in submitted.spec.patterns
    return not had_its_own or name in reader.spec.keys or name in reader.spec.patterns


def keep_reader(run: RunRecord, reader: LogReader) -> None:
    """Keep how the log of a new run is read, unless by llmb alone: its plugin may be gone by then.

    A plugin that reads logs itself has read nothing yet, so that only the metrics are kept.
    """
    if reader.spec.samples is not None:
        reader = replace(reader, spec=replace(reader.spec, samples=None))
        data = {_METRICS_ALONE: reader} if reader.metrics else {}
    else:
        data = {_READER: reader} if reader != OWN_READER else {}
    if not data:
        return
    with contextlib.suppress(LlmbError):
        data = typed.compact_data({_VERSION: _SCHEMA_VERSION, **data})
        text = json.dumps(data, ensure_ascii=False) + "\n"
        files.write_text(run.directory / READER, text, durable=False)


def kept_reader(run: RunRecord) -> LogReader | None:
    """Return the reader that was kept when the run was made, or None."""
    return _kept_reader(run, _READER)


def submitted_metrics(run: RunRecord) -> LogReader | None:
    """Return a reader with the metrics that the run's plugin declared when it was submitted."""
    return _kept_reader(run, _READER) or _kept_reader(run, _METRICS_ALONE)


def _kept_reader(run: RunRecord, key: str) -> LogReader | None:
    path = f"{run.directory}/{READER}"
    with contextlib.suppress(LlmbError):
        data = files.read_json(path)
        if isinstance(data, dict) and data.get(_VERSION) == _SCHEMA_VERSION and key in data:
            return typed.read_own(LogReader, path, data[key])
    return None
