# SPDX-License-Identifier: Apache-2.0
"""MLPerf's own lines in a log, which have the time to train and the throughput.

``:::MLLOG {"namespace": "", "time_ms": 1744839180560, "event_type": "INTERVAL_END", "key":
"run_stop", "value": null, "metadata": {"status": "success"}}``
"""

import json
from dataclasses import replace
from typing import Any

from llmb.contract.metrics import STEP_TIME, TOKENS_PER_SECOND, Measured, MetricSpec
from llmb.contract.samples import MlPerf, Samples
from llmb.core.scan import Line, needle, plain, strip_escapes
from llmb.measure.result import Metrics
from llmb.measure.statistics import quantile

EVENT = needle(":::MLLOG", b"{")
SUCCESSFUL = "success"
TIME_TO_TRAIN, SAMPLES_PER_SECOND = "time_to_train", "samples_per_second"
_COUNTS_TOKENS = frozenset({"gpt3"})  # benchmarks whose throughput and samples are tokens
_MOST_RATES = 10_000
_MOST = 1e15


def with_event(run: MlPerf | None, line: Line) -> MlPerf | None:
    """Return the ``run`` with the event of ``line``, unchanged if the line is incomplete.

    Each rank may log the same event. The first one is used.
    """
    text = strip_escapes(line.after[len(EVENT.text) :]).decode("utf-8", "replace").lstrip()
    try:
        event, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return run
    key = event.get("key") if isinstance(event, dict) else None
    if not isinstance(key, str):
        return run
    run, time, value = run or MlPerf(), _number(event.get("time_ms")), event.get("value")
    metadata = event.get("metadata") if isinstance(event.get("metadata"), dict) else {}
    if (
        key == "init_start"
        and time is not None
        and not run.status
        and time > (run.start_ms or time)
    ):
        return MlPerf()  # a further attempt: the one before was killed
    if key == "run_start" and time is not None and (not run.status or time > (run.stop_ms or 0)):
        begun = run.start_ms is not None and not run.status
        return run if begun else MlPerf(start_ms=time, benchmark=run.benchmark)
    if key == "run_stop" and not run.status and isinstance(status := metadata.get("status"), str):
        samples = _number(metadata.get("samples_count")) or run.samples
        return replace(run, stop_ms=time, status=plain(status, 40), samples=samples)
    if key == "submission_benchmark" and isinstance(value, str):
        return replace(run, benchmark=plain(value, 40))
    if key == "train_samples" and run.samples is None:
        return replace(run, samples=_number(value))
    rate = _number(value.get("throughput")) if isinstance(value, dict) else None
    if key == "tracked_stats" and rate and len(run.rates) < _MOST_RATES and not run.status:
        return replace(run, rates=(*run.rates, rate))
    return run


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < _MOST else None


def with_mlperf(metrics: Metrics, samples: Samples) -> Metrics:
    """Add the time to train and the throughput of an MLPerf run that has ended.

    The time is the headline unless the log has step times. The throughput is the median of what
    was logged before the end, or all samples by the time to train.
    """
    run = samples.mlperf
    if run is None or not run.status or run.seconds is None:
        return metrics
    time = MetricSpec(name=TIME_TO_TRAIN, unit="s", better="lower")
    measured = {TIME_TO_TRAIN: time.measured(run.seconds, None, 1), **metrics.measured}
    rate = quantile(sorted(run.rates), 0.5) if run.rates else (run.samples or 0) / run.seconds
    counts_tokens = run.benchmark in _COUNTS_TOKENS
    name = TOKENS_PER_SECOND if counts_tokens else SAMPLES_PER_SECOND
    if rate and name not in measured:
        measured[name] = Measured(
            mean=rate, std=None, n=0, unit="tokens/s" if counts_tokens else "samples/s"
        )
    headline = metrics.headline
    if headline == STEP_TIME and not metrics.has_figures:
        headline = TIME_TO_TRAIN
    return replace(metrics, measured=measured, headline=headline)


def end_of(samples: Samples) -> str:
    """Return in words how MLPerf's run ended, empty for a log without one."""
    run = samples.mlperf
    if run is None or (run.start_ms is None and not run.status):
        return ""
    return f"MLPerf's run_stop has the status {run.status}" if run.status else "no run_stop"
