# SPDX-License-Identifier: Apache-2.0
"""The loss curve of a run, kept with its result so that later runs are compared with it."""

import itertools
import math
from collections import Counter

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

    Of a long run it has the lines whose place is a multiple of a power of two, and the last one, so
    that runs of different lengths have points in common. The place is by the iteration: a step
    without a loss, as fp16 skips them, moves no other.
    """
    steps = [step for step in samples.steps if step.loss is not None and math.isfinite(step.loss)]
    if not steps:
        return None
    interval = line = 1
    while len(steps) > MOST * interval:
        interval *= 2
    if interval > 1:
        pairs = itertools.pairwise(samples.steps)
        intervals = Counter(after.iteration - before.iteration for before, after in pairs)
        line = max(
            1, intervals.most_common(1)[0][0]
        )  # a plugin's samples may have one iteration several times
    kept_steps = [
        step for step in steps if step.iteration // line % interval == 0 or step is steps[-1]
    ]
    return LossCurve(
        iterations=tuple(step.iteration + samples.first for step in kept_steps),
        values=tuple(step.loss for step in kept_steps if step.loss is not None),
    )
