# SPDX-License-Identifier: Apache-2.0
"""Measures the window of iterations: its steps, mean and deviation of each metric, throughput."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from llmb.contract import metrics
from llmb.contract.metrics import Measured, MetricSpec
from llmb.contract.samples import Samples, Step
from llmb.errors import UsageError


class Window(NamedTuple):
    """The first and the last iteration of a window. Negative ones count from the end.

    Iterations are numbered from 0, or from 1 if the log does so (Megatron).
    """

    first: int
    last: int

    def of(self, steps: int, first: int = 0) -> Window:
        """Return the window without negative iterations, of ``steps`` steps from ``first``."""
        if self.first >= 0 <= self.last:  # of thousands of runs
            return self
        return Window(*(number + steps + first if number < 0 else number for number in self))

    def __str__(self) -> str:
        return "last" if self == LAST else f"{self.first}-{self.last}"


LAST = Window(-1, -1)


_PARTS = (0.22, 0.88)


def default_window(
    steps: int, first: int = 0, *, parts: tuple[float, float] | None = None
) -> Window:
    """Return the window of NVIDIA's releases: iterations 11-44 of 50, or that part of ``steps``.

    ``parts`` of the steps, for the first and the last iteration, are those of a framework with
    another window. As in the releases, the numbers are the same whether iterations are numbered
    from 0 or from another ``first``.
    """
    return Window(
        *(max(first, min(round(part * steps), steps - 1 + first)) for part in parts or _PARTS)
    )


def parse_window(text: str) -> Window:
    """Return the window ``11-44``, or ``last`` for the last step alone. Raises UsageError."""
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
    """Return the steps in ``window``. A mean of several steps needs all of them in it."""
    first, last = window.first - samples.first, window.last - samples.first
    return [
        step
        for step in samples.steps
        if first <= step.iteration - step.span + 1 and step.iteration <= last
    ]


def covered(samples: Samples, window: Window) -> Window:
    """Return the iterations of the lines that measure ``window``, if a line is for several steps.

    These are the lines that are completely inside it. If there are fewer than two, they are all
    lines that overlap it, except for the first one, which contains the start of the program.
    Without any, it is the last line alone.
    """
    interval = max((step.span for step in samples.steps), default=1)
    if interval == 1:
        return window
    steps = samples.steps
    offset = (steps[-1].iteration + 1) % interval  # 1 if the first line is of one step
    number = samples.first + offset
    first, end = window.first - number, window.last - number + 1
    inside = math.ceil(first / interval) * interval, end // interval * interval
    planned = (steps[-1].iteration if samples.last is None else samples.last) + 1 - offset
    overlapping = (
        max(first // interval * interval, steps[0].iteration + 1 - offset),
        min(math.ceil(end / interval), planned // interval) * interval,
    )
    alone = steps[-1].iteration - steps[-1].span + 1 - offset, steps[-1].iteration + 1 - offset
    several = [lines for lines in (inside, overlapping) if lines[1] - lines[0] > interval]
    stretches = [lines for lines in (inside, overlapping) if lines[0] < lines[1]]
    begin, end = [*several, *stretches, alone][0]
    return Window(begin + number, end - 1 + number)


def batches_in(samples: Samples, window: Window) -> tuple[int, ...]:
    """Return the global batches of the steps in ``window``, each once, as far as they are logged.

    A line for several steps in which the batch changes may have steps of both.
    """
    steps = steps_in(samples, window)
    if not steps:
        return ()
    begin, last = steps[0].iteration - steps[0].span + 1, steps[-1].iteration
    before = [batch for iteration, batch in samples.batches if iteration <= begin]
    changes = [batch for iteration, batch in samples.batches if begin < iteration <= last]
    return tuple(dict.fromkeys((*before[-1:], *changes)))


SECONDS_PER_DAY = 86400
# seconds, TFLOPS: so that no square and no ratio of two is beyond what a float can hold
_MOST = 1e9
# of any unit: its square and the ratio of two are within what a float can hold
_MOST_DECLARED = 1e150


def measure(
    samples: Samples, window: Window, declared: Sequence[MetricSpec] = ()
) -> dict[str, Measured]:
    """Return the values of ``window`` by metric, of training and of those ``declared``.

    Of training: step time, the framework's TFLOPS, tokens per second of one GPU. There are none
    unless each iteration has a step time (positive, not nan or inf), or all lines have only a rate
    of tokens. TFLOPS are omitted unless each iteration has a finite one, and so is each declared
    metric. Impossible values are of damaged logs.
    """
    steps = steps_in(samples, window)
    if (
        window.last < window.first
        or sum(step.span for step in steps) != window.last - window.first + 1
    ):
        return {}
    measured = _training(steps)
    for spec in declared:
        values = [step.values.get(spec.name) for step in steps]
        measured[spec.name] = _figures(spec, steps, values, -_MOST_DECLARED, _MOST_DECLARED)
    return {name: value for name, value in measured.items() if value is not None}


def _training(steps: Sequence[Step]) -> dict[str, Measured | None]:
    """Return the metrics that every training log has, none without times or rates."""
    specs = metrics.TRAINING_BY_NAME
    time = _figures(specs[metrics.STEP_TIME], steps, [step.step_time for step in steps])
    rate = _rate(specs[metrics.TOKENS_PER_SECOND_PER_GPU], steps, [s.tokens_rate for s in steps])
    if time is None and (rate is None or not all(math.isnan(step.step_time) for step in steps)):
        return {}
    tflops = _rate(
        specs[metrics.TFLOPS_PER_GPU], steps, [step.tflops for step in steps], least=-_MOST
    )
    return {
        metrics.STEP_TIME: time,
        metrics.TOKENS_PER_SECOND_PER_GPU: rate,
        metrics.TFLOPS_PER_GPU: tflops,
    }


def _rate(
    spec: MetricSpec,
    steps: Sequence[Step],
    values: Sequence[float | None],
    least: float = 1 / _MOST,
) -> Measured | None:
    """Return the rate over all of the time, which is the harmonic mean of those of the steps.

    Its deviation is that of the times, as a fraction. Rates that are not all positive, as if
    rounded to 0, have their arithmetic mean.
    """
    figures = _figures(spec, steps, [1 / value if value else None for value in values])
    if figures is None:
        return _figures(spec, steps, values, least)
    rate = 1 / figures.mean
    return spec.measured(rate, figures.deviation_of(rate), figures.n)


def _figures(
    spec: MetricSpec,
    steps: Sequence[Step],
    values: Sequence[float | None],
    least: float = 1 / _MOST,
    most: float = _MOST,
) -> Measured | None:
    """Return mean and population deviation of ``values``, None unless all are valid.

    Each line weighs as much as it has steps. A single line has no deviation.
    """
    sound = [
        (value, step.span) for value, step in zip(values, steps, strict=True) if value is not None
    ]
    if len(sound) != len(steps) or not all(least < value < most for value, _ in sound):
        return None
    # The module statistics does the same, but its import takes as long as a whole command.
    count = sum(span for _, span in sound)
    mean = math.fsum(value * span for value, span in sound) / count
    if len(sound) == 1:  # also of several iterations
        return spec.measured(mean, None, count)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 * span for value, span in sound) / count)
    return spec.measured(mean, deviation, count)


def why_unmeasured(samples: Samples, window: Window, name: str) -> str:
    """Name the iterations of ``window`` without a valid value of the metric ``name``."""
    values = [
        (step.iteration + samples.first, step.values.get(name))
        for step in steps_in(samples, window)
    ]
    invalid = [
        (number, value)
        for number, value in values
        if value is None or not abs(value) < _MOST_DECLARED
    ]
    if not invalid:
        return ""
    number, value = invalid[0]
    further = f" and {len(invalid) - 1} more" if len(invalid) > 1 else ""
    return (
        f"{name} is {'missing' if value is None else f'{value:g}'} at iteration {number}{further}"
    )


def tokens_per_second(seq_length: int, gbs: int, step_time: float) -> float:
    """Return the rate of the whole job: ``gbs`` samples of ``seq_length`` tokens in a step."""
    return seq_length * gbs / step_time


def model_tflops_per_gpu(gbs: int, model_flops: float, step_time: float, gpus: int) -> float:
    """Return the model TFLOPS of one GPU. ``model_flops`` are the operations of a sample."""
    return gbs * model_flops / step_time / gpus / 1e12


def mfu(tflops_per_gpu: float, peak_tflops: float) -> float:
    """Return the model FLOPs utilization, a fraction of one GPU's dense peak at this dtype."""
    return tflops_per_gpu / peak_tflops


def days_to_train(tokens: float, rate: float) -> float:
    """Days for ``tokens`` tokens at ``rate`` tokens per second."""
    return tokens / rate / SECONDS_PER_DAY
