# SPDX-License-Identifier: Apache-2.0
"""How a workload's log is read, as a value that a plugin can give."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseSpec:
    """Which lines are steps and which keys they hold.

    ``needle``: text that every step's line has and few others; ``iteration``: a pattern with the groups ``i`` (0-based)
    and ``last``; ``keys`` maps our names (``step_time``, ``tflops``, ``loss``) to the log's. ``tflops_valid`` False
    marks the framework's own TFLOPS as wrong for this model, with ``tflops_note`` saying why.
    """

    needle: str = "train_step_timing in s"
    iteration: str = r"iteration (?P<i>\d+)/(?P<last>\d+)"
    keys: dict[str, str] = field(
        default_factory=lambda: {
            "step_time": "train_step_timing in s",
            "tflops": "TFLOPS_per_GPU",
            "loss": "reduced_train_loss",
        }
    )
    tflops_valid: bool = True
    tflops_note: str = ""
