# SPDX-License-Identifier: Apache-2.0
"""Picks the jobs of a list that fit a budget of GPU-hours. Pure.

The rule: the jobs are looked at in the order of the list, repeats one after another. A job is picked if its estimate is
within what is left of the budget; else it is skipped, and a later one that is cheaper may still be picked. A job of
which only the time limit is known costs that.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from llmb.errors import UsageError
from llmb.planning.estimate import JobEstimate

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(?:gpu-?h(?:ours?)?|cpu-?h(?:ours?)?|h)?")
_ALMOST = 1e-9  # a fraction: a sum of shares of a budget may exceed it by the rounding of its last bit


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """Which jobs fit a budget, by their places in the list, and the GPU-hours that these use."""

    picked: tuple[int, ...]
    skipped: tuple[int, ...]
    used: float


def parse_budget(text: str) -> float:
    """The GPU-hours of ``5000gpuh``, ``5,000`` or ``12.5h``. Raises UsageError."""
    found = _AMOUNT.fullmatch(text.strip().lower().replace(",", ""))
    if found is None or float(found[1]) == 0:
        message, hint = f"--budget: '{text}' must be GPU-hours above 0, such as 5000gpuh", "--budget 5000gpuh"
        raise UsageError(message, hint=hint, code="value-not-allowed", key="--budget", value=text)
    return float(found[1])


def pick(estimates: Sequence[JobEstimate], budget: float) -> Picked:
    """The jobs that fit ``budget`` GPU-hours, in the order of the list (the rule is above)."""
    picked, skipped, used = [], [], 0.0
    for place, one in enumerate(estimates):
        if used + one.gpu_hours <= budget * (1 + _ALMOST):
            picked.append(place)
            used += one.gpu_hours
        else:
            skipped.append(place)
    return Picked(picked=tuple(picked), skipped=tuple(skipped), used=used)
