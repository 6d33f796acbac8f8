# SPDX-License-Identifier: Apache-2.0
"""Measure how a long training holds out: drift of its speed, share of time in steps, heat.

Only telemetry tells when a line was logged (``llmb.measure.telemetry``), each at most an interval
late. Without it there is no share of time, since few logs have times.
"""

import itertools
import math
from collections.abc import Sequence

from llmb.contract.samples import Node, Samples, Step
from llmb.contract.window import Window
from llmb.core.values import dataclass
from llmb.measure.statistics import quantile, student_t
from llmb.measure.telemetry import NodeSamples, time_of_line
from llmb.measure.uneven import slowing_reasons

FEWEST_STEPS = 100
_BLOCKS = 20  # of which the slope is taken: single steps depend on the steps before them
_FEWEST_BLOCKS = 5  # the interval of a slope through fewer is too wide for a verdict
_LINES = 3  # in a block: the median of three omits a slow one


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained:
    """A training of FEWEST_STEPS steps or more, from its first step to its last.

    Its steps are those of the last attempt, and of earlier ones those before the checkpoint from
    which it continues.
    """

    steps: int
    #: The growth of the step time from the first step of the window to the last step of the run, by
    #: the slope of block medians, as a fraction of the median. Above 0 it gets slower. None if too
    #: few lines have the times of steps.
    drift: float | None = None
    drift_interval: tuple[float, float] | None = None  #: 95 %
    in_steps_s: float  #: the sum of the step times
    elapsed_s: float | None = None  #: from the first step, or the first start, to the last step
    #: In the last attempt, between the end of a step and the begin of the next.
    between_steps_s: float | None = None
    restarts: int = 0  #: how often the iterations of the log began again
    #: From the first start of the program to the first step of the last attempt, without the steps
    #: before that one: starts, pauses, and steps that were trained again.
    lost_to_restarts_s: float | None = None
    goodput: float | None = None  #: ``in_steps_s`` by ``elapsed_s``, at most 1
    hottest_c: float | None = None  #: degrees Celsius, of all GPUs in the default window
    #: The nodes whose GPUs were slowed by heat, power brake or hardware, each with the reasons.
    slowed_nodes: tuple[str, ...] = ()


def sustained_of(
    samples: Samples, window: Window | None, series: Sequence[NodeSamples], nodes: Sequence[Node]
) -> Sustained | None:
    """Return how the last attempt held out, None for a short one or without step times.

    ``window`` is the default one, whichever the user measures. ``series`` are the samples of each
    node, ``nodes`` what is known of them in this window.
    """
    steps, all_steps = samples.steps, (*samples.resumed, *samples.steps)
    count = sum(step.span for step in all_steps)
    if count < FEWEST_STEPS or not all(0 < step.step_time < math.inf for step in all_steps):
        return None
    seconds, resumed = _seconds(all_steps), _seconds(samples.resumed)
    begin = 0 if window is None else window.first - samples.first
    if len(samples.batches) > 1:  # steps of another batch take another time
        begin = max(begin, samples.batches[-1][0])
    drift, interval = _drift([step for step in steps if step.iteration >= begin])
    restarts = max(0, samples.attempts - 1)
    elapsed, between, lost = _times(samples, resumed, series, restarts)
    measured = [node.telemetry for node in nodes if node.telemetry is not None]
    degrees = [item.temperature_c.max for item in measured if item.temperature_c is not None]
    slowed = {
        node.host: slowing_reasons(node.telemetry.throttle)
        for node in nodes
        if node.telemetry is not None and node.telemetry.throttle is not None
    }
    return Sustained(
        steps=count,
        drift=drift,
        drift_interval=interval,
        in_steps_s=round(seconds, 3),
        elapsed_s=elapsed,
        between_steps_s=between,
        restarts=restarts,
        lost_to_restarts_s=lost,
        goodput=min(1.0, round(seconds / elapsed, 4)) if elapsed else None,
        hottest_c=max(degrees, default=None),
        slowed_nodes=tuple(
            f"{host}: {', '.join(reasons)}" for host, reasons in sorted(slowed.items()) if reasons
        ),
    )


def _drift(steps: Sequence[Step]) -> tuple[float | None, tuple[float, float] | None]:
    """Return the drift by least squares over the medians of blocks, and its 95 % interval."""
    if len(steps) < _FEWEST_BLOCKS:
        return None, None
    count = max(_FEWEST_BLOCKS, min(_BLOCKS, len(steps) // _LINES))
    bounds = [len(steps) * number // count for number in range(count + 1)]
    blocks = [steps[first:last] for first, last in itertools.pairwise(bounds)]
    times = [quantile(sorted(step.step_time for step in block), 0.5) for block in blocks]
    places = [math.fsum(step.iteration for step in block) / len(block) for block in blocks]
    middle, mean = math.fsum(places) / count, math.fsum(times) / count
    square = math.fsum((place - middle) ** 2 for place in places)
    pairs = list(zip(places, times, strict=True))
    slope = math.fsum((place - middle) * (time - mean) for place, time in pairs) / square
    residual = math.fsum((time - mean - slope * (place - middle)) ** 2 for place, time in pairs)
    error = math.sqrt(residual / (count - 2) / square)
    median = quantile(sorted(times), 0.5)
    factor = (steps[-1].iteration - steps[0].iteration) / median
    half = student_t(count - 2) * error * factor
    drift = slope * factor
    return round(drift, 5), (round(drift - half, 5), round(drift + half, 5))


def _seconds(steps: Sequence[Step]) -> float:
    return math.fsum(step.step_time * step.span for step in steps)


def _times(
    samples: Samples, resumed: float, series: Sequence[NodeSamples], restarts: int
) -> tuple[float | None, float | None, float | None]:
    """Return the elapsed seconds, those between steps, and those lost to restarts.

    ``resumed`` seconds of steps of earlier attempts are not lost.
    """
    first, last = samples.steps[0], samples.steps[-1]
    offsets = dict(samples.offsets)
    begin = time_of_line(series, offsets.get(first.iteration))
    end = time_of_line(series, offsets.get(last.iteration))
    starts = [node.samples[0].time for node in series if node.is_first and node.samples]
    if begin is None or end is None or not starts:
        return None, None, None if restarts else 0.0
    in_steps, own_first = _seconds(samples.steps), _seconds([first])
    between = max(0.0, end - begin - (in_steps - own_first))
    lost = max(0.0, begin - own_first - min(starts) - resumed) if restarts else 0.0
    elapsed = resumed + in_steps + between + lost
    return round(elapsed, 3), round(between, 3), round(lost, 3)
