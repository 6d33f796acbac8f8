# SPDX-License-Identifier: Apache-2.0
"""What a training log says, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One training step: ``iteration`` from 0, ``step_time`` in seconds, ``tflops`` of one GPU as the framework says.

    Numbers are as logged, so nan and inf occur; what the line does not hold is None.
    """

    iteration: int
    step_time: float
    tflops: float | None = None
    loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The last attempt of a log.

    ``last``: the last iteration that the log announces; ``attempts``: how often the iterations started anew, 0 without
    a step; ``ended``: the trainer said that it was done; ``checkpoint_saves``: seconds of each save by rank 0.
    """

    steps: tuple[Step, ...] = ()
    last: int | None = None
    attempts: int = 0
    ended: bool = False
    checkpoint_saves: tuple[float, ...] = ()

    @property
    def max_iteration(self) -> int | None:
        """The highest iteration, None without a step."""
        return self.steps[-1].iteration if self.steps else None
