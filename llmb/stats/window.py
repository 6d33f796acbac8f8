# SPDX-License-Identifier: Apache-2.0
"""The window of iterations that is measured: the default one, the one that ``--window`` names, the steps within it."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from llmb.errors import UsageError
from llmb.logs.samples import Samples, Step


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
