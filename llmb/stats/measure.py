# SPDX-License-Identifier: Apache-2.0
"""Measures the window of iterations: which steps are in it, mean and deviation of each metric, and throughput."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from llmb.errors import UsageError
from llmb.logs.samples import Samples, Step
from llmb.stats import metrics
from llmb.stats.metrics import Measured, MetricSpec


class Window(NamedTuple):
    """The first and the last iteration of a window; negative ones are from the end as in a list.

    Iterations are numbered from 0, and from 1 where the log does so (Megatron).
    """

    first: int
    last: int

    def of(self, steps: int, first: int = 0) -> Window:
        """The same window without negative iterations, for ``steps`` steps numbered from ``first``."""
        return Window(*(number + steps + first if number < 0 else number for number in self))

    def __str__(self) -> str:
        return "last" if self == LAST else f"{self.first}-{self.last}"


LAST = Window(-1, -1)


def default_window(steps: int, first: int = 0, *, framework: str | None = None) -> Window:
    """Iterations 11-44 of 50 (releases 25.05 to 25.07), the same part of another number of ``steps`` (1 or more).

    With Megatron-Bridge (``framework`` bridge) 35-44 of 50, the window of NVIDIA's exemplar-performance. As in the
    releases, the numbers are the same whether iterations are numbered from 0 or from another ``first``.
    """
    parts = (0.7, 0.88) if framework == "bridge" else (0.22, 0.88)
    return Window(*(max(first, min(round(part * steps), steps - 1 + first)) for part in parts))


def parse_window(text: str) -> Window:
    """The window that ``--window`` names: ``11-44``, or ``last`` for the last step alone. Raises UsageError."""
    if text.strip().lower() == "last":
        return LAST
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*-\s*([0-9]{1,9})\s*", text)
    if match is None or int(match[1]) > int(match[2]):
        raise UsageError(
            f"--window {text} is not a range of iterations",
            hint="--window 11-44 (first and last iteration), or --window last",
            code="window-invalid",
            key="--window",
            value=text,
        )
    return Window(int(match[1]), int(match[2]))


def steps_in(samples: Samples, window: Window) -> list[Step]:
    """The steps in ``window``; a line that is the mean of several steps only if all of them are in it."""
    first, last = window.first - samples.first, window.last - samples.first
    return [step for step in samples.steps if first <= step.iteration - step.span + 1 and step.iteration <= last]


def covered(samples: Samples, window: Window) -> Window:
    """The part of ``window`` that whole lines cover, where a line is printed for several steps, at an interval.

    The whole run where no line is within the window.
    """
    interval = max((step.span for step in samples.steps), default=1)
    if interval == 1:
        return window
    first, end = window.first - samples.first, window.last - samples.first + 1
    first, end = math.ceil(first / interval) * interval, end // interval * interval
    if first < end:
        return Window(first + samples.first, end - 1 + samples.first)
    steps = samples.steps
    return Window(steps[0].iteration - steps[0].span + 1 + samples.first, steps[-1].iteration + samples.first)


SECONDS_PER_DAY = 86400
_MOST = 1e9  # seconds, TFLOPS: so that no square and no ratio of two is beyond what a float can hold
_MOST_DECLARED = 1e150  # of any unit: its square and the ratio of two are within what a float can hold


def measure(samples: Samples, window: Window, declared: Sequence[MetricSpec] = ()) -> dict[str, Measured]:
    """What ``window`` measured, by name: the metrics of training in the log, and those that the workload declared.

    Of training: step time, the framework's TFLOPS, tokens per second of one GPU; none unless each iteration has a step
    time (positive, not nan or inf), or all lines have only a rate of tokens. TFLOPS are omitted unless each iteration
    has a finite one, and so is each declared metric. Impossible values are of damaged logs.
    """
    steps = steps_in(samples, window)
    if window.last < window.first or sum(step.span for step in steps) != window.last - window.first + 1:
        return {}
    found = _training(steps)
    for spec in declared:
        values = [step.values.get(spec.name) for step in steps]
        found[spec.name] = _figures(spec, steps, values, -_MOST_DECLARED, _MOST_DECLARED)
    return {name: own for name, own in found.items() if own is not None}


def _training(steps: Sequence[Step]) -> dict[str, Measured | None]:
    """What every training log has; nothing unless there are times, or rates alone."""
    specs = metrics.TRAINING_BY_NAME
    time = _figures(specs[metrics.STEP_TIME], steps, [step.step_time for step in steps])
    rate = _figures(specs[metrics.TOKENS_PER_SECOND_PER_GPU], steps, [step.tokens_rate for step in steps])
    if time is None and (rate is None or not all(math.isnan(step.step_time) for step in steps)):
        return {}
    tflops = _figures(specs[metrics.TFLOPS_PER_GPU], steps, [step.tflops for step in steps], least=-_MOST)
    return {metrics.STEP_TIME: time, metrics.TOKENS_PER_SECOND_PER_GPU: rate, metrics.TFLOPS_PER_GPU: tflops}


def _figures(
    spec: MetricSpec,
    steps: Sequence[Step],
    values: Sequence[float | None],
    least: float = 1 / _MOST,
    most: float = _MOST,
) -> Measured | None:
    """Mean and population deviation of ``values``, weighted by the steps of their lines; None unless all are valid."""
    sound = [(value, step.span) for value, step in zip(values, steps, strict=True) if value is not None]
    if len(sound) != len(steps) or not all(least < value < most for value, _ in sound):
        return None
    # The module statistics does the same, but its import takes as long as a whole command.
    count = sum(span for _, span in sound)
    mean = math.fsum(value * span for value, span in sound) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 * span for value, span in sound) / count)
    return spec.measured(mean, deviation, count)


def why_unmeasured(samples: Samples, window: Window, name: str) -> str:
    """Which iterations of ``window`` lack a valid value of the declared metric ``name``; empty where none is known."""
    values = [(step.iteration + samples.first, step.values.get(name)) for step in steps_in(samples, window)]
    bad = [(number, value) for number, value in values if value is None or not abs(value) < _MOST_DECLARED]
    if not bad:
        return ""
    number, value = bad[0]
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"{name} is {'missing' if value is None else f'{value:g}'} at iteration {number}{more}"


def tokens_per_second(seq_length: int, gbs: int, step_time: float) -> float:
    """Tokens per second of the whole job: a step trains on ``gbs`` samples of ``seq_length`` tokens."""
    return seq_length * gbs / step_time


def model_tflops_per_gpu(gbs: int, model_flops: float, step_time: float, gpus: int) -> float:
    """Model TFLOPS of one GPU; ``model_flops`` are the operations for one sample."""
    return gbs * model_flops / step_time / gpus / 1e12


def mfu(tflops_per_gpu: float, peak_tflops: float) -> float:
    """Model FLOPs utilization, a fraction: ``tflops_per_gpu`` of the dense peak of one GPU at this dtype."""
    return tflops_per_gpu / peak_tflops


def days_to_train(tokens: float, rate: float) -> float:
    """Days for ``tokens`` tokens at ``rate`` tokens per second."""
    return tokens / rate / SECONDS_PER_DAY
