# SPDX-License-Identifier: Apache-2.0
"""The loss curve of a run, kept with its result so that later runs are compared with it."""

import math

from llmb.contract.samples import Samples
from llmb.core.values import dataclass

MOST = 256  # points that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurve:
    """The training loss of a run at some of its iterations."""

    iterations: tuple[int, ...]  #: in the numbers of the log
    values: tuple[float, ...]  #: of the same length


def loss_curve(samples: Samples) -> LossCurve | None:
    """Return the finite losses of a log, None without any.

    Of a long run it has the steps whose place is a multiple of a power of two, and the last step,
    so that runs of different lengths have points in common.
    """
    points = [
        (step.iteration + samples.first, step.loss)
        for step in samples.steps
        if step.loss is not None and math.isfinite(step.loss)
    ]
    if not points:
        return None
    interval = 1
    while len(points) > MOST * interval:
        interval *= 2
    kept = [*points[::interval], *([] if (len(points) - 1) % interval == 0 else points[-1:])]
    return LossCurve(
        iterations=tuple(iteration for iteration, _ in kept),
        values=tuple(loss for _, loss in kept),
    )
