# SPDX-License-Identifier: Apache-2.0
"""From samples to figures: the window of iterations that counts, its mean and deviation, throughput and MFU."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from llmb.errors import UsageError
from llmb.logs.samples import Samples

SECONDS_PER_DAY = 86400
_MOST = 1e9  # seconds, TFLOPS: so that no square and no ratio of two is beyond what a float can hold


class Window(NamedTuple):
    """The first and the last iteration that count, both from 0; negative ones count from the end as in a list."""

    first: int
    last: int

    def of(self, steps: int) -> Window:
        """The same window with negative iterations made positive for a run of ``steps`` steps."""
        return Window(*(number + steps if number < 0 else number for number in self))

    def __str__(self) -> str:
        return "last" if self == LAST else f"{self.first}-{self.last}"


LAST = Window(-1, -1)


def default_window(steps: int) -> Window:
    """Iterations 11-44 of 50 (releases 25.05 to 25.07), the same part of another number of ``steps`` (1 or more)."""
    return Window(min(round(0.22 * steps), steps - 1), min(round(0.88 * steps), steps - 1))


def parse_window(text: str) -> Window:
    """The window that ``--window`` names: ``11-44``, or ``last`` for the last step alone. Raises UsageError."""
    if text.strip().lower() == "last":
        return LAST
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*-\s*([0-9]{1,9})\s*", text)
    if match is None or int(match[1]) > int(match[2]):
        raise UsageError(f"'{text}' is not a window", hint="write the first and the last iteration, 11-44, or: last")
    return Window(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Mean and population standard deviation over a window: step time in seconds, the framework's TFLOPS of a GPU."""

    time_mean: float
    time_std_dev: float
    tflops_mean: float | None
    tflops_std_dev: float | None


def measure(samples: Samples, window: Window) -> Measurement | None:
    """The measurement over ``window``, None unless each of its iterations has a step time (positive, not nan or inf).

    TFLOPS are None unless each of them has a finite one. What no program measures, a log that is damaged says.
    """
    steps = [step for step in samples.steps if window.first <= step.iteration <= window.last]
    times = [step.step_time for step in steps if 1 / _MOST < step.step_time < _MOST]
    if window.last < window.first or len(times) != window.last - window.first + 1:
        return None
    tflops = [step.tflops for step in steps if step.tflops is not None and abs(step.tflops) < _MOST]
    whole = len(tflops) == len(times)
    time_mean, time_std_dev = _mean_and_deviation(times)
    tflops_mean, tflops_std_dev = _mean_and_deviation(tflops) if whole else (None, None)
    return Measurement(
        time_mean=time_mean, time_std_dev=time_std_dev, tflops_mean=tflops_mean, tflops_std_dev=tflops_std_dev
    )


def _mean_and_deviation(values: list[float]) -> tuple[float, float]:
    # The module statistics does the same, exactly, and takes as long to import as a whole command.
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def tokens_per_second(seq_length: int, gbs: int, step_time: float) -> float:
    """Tokens per second of the whole job: a step trains on ``gbs`` samples of ``seq_length`` tokens."""
    return seq_length * gbs / step_time


def model_tflops_per_gpu(gbs: int, model_flops: float, step_time: float, gpus: int) -> float:
    """TFLOPS of one GPU that go into the model; ``model_flops`` are the operations of one sample."""
    return gbs * model_flops / step_time / gpus / 1e12


def mfu(tflops_per_gpu: float, peak_tflops: float) -> float:
    """Model FLOPs utilization, a fraction: ``tflops_per_gpu`` of the dense peak of one GPU at this dtype."""
    return tflops_per_gpu / peak_tflops


def days_to_train(tokens: float, rate: float) -> float:
    """Days for ``tokens`` tokens at ``rate`` tokens per second."""
    return tokens / rate / SECONDS_PER_DAY
