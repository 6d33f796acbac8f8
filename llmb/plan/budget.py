# SPDX-License-Identifier: Apache-2.0
"""Picks the jobs of a list that fit a budget of GPU-hours. Pure.

The rule: the jobs are looked at in the order of the list, repeats one after another. A job is
picked if its estimate is within what is left of the budget, else it is skipped, and a later one
that is cheaper may still be picked. A job of which only the time limit is known costs that.
"""

import re
from collections.abc import Sequence

from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.plan.estimate import JobEstimate

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(?:gpu-?h(?:ours?)?|cpu-?h(?:ours?)?|h)?")
# a fraction: a sum of shares of a budget may exceed it by the rounding of its last bit
_ALMOST = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """The jobs that fit a budget, by their places in the list, and their GPU-hours."""

    picked: tuple[int, ...]
    skipped: tuple[int, ...]
    used: float


def parse_budget(text: str) -> float:
    """The GPU-hours of ``5000gpuh``, ``5,000`` or ``12.5h``. Raises UsageError."""
    match = _AMOUNT.fullmatch(text.strip().lower().replace(",", ""))
    if match is None or float(match[1]) == 0:
        raise UsageError(
            f"--budget: '{text}' must be GPU-hours above 0, such as 5000gpuh",
            hint="--budget 5000gpuh",
            code="value-not-allowed",
            key="--budget",
            value=text,
        )
    return float(match[1])


def pick(estimates: Sequence[JobEstimate], budget: float) -> Picked:
    """The jobs that fit ``budget`` GPU-hours, in the order of the list (the rule is above)."""
    picked, skipped, used = [], [], 0.0
    for place, job in enumerate(estimates):
        if used + job.gpu_hours <= budget * (1 + _ALMOST):
            picked.append(place)
            used += job.gpu_hours
        else:
            skipped.append(place)
    return Picked(picked=tuple(picked), skipped=tuple(skipped), used=used)
