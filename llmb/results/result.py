# SPDX-License-Identifier: Apache-2.0
"""One run's result; its fields, in their order, are what ``results --format json`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmb.measure import Window

SUCCESS, FAILED, RUNNING = "Success", "Failed", "Running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run measured; None where it is not known.

    ``path``: the training log; ``window``: the iterations that count; ``max_iteration``: the highest in the log, from
    0; ``steps``: how many were planned; ``tflops_per_gpu_*``: as the framework logs them; ``tokens_per_second``: of the
    whole job; ``model_flops``: operations of one sample by the formula that ``flops_convention`` names; ``mfu``: a
    fraction; ``ratio``: measured by published throughput.
    """

    experiment: str
    path: str
    status: str
    reason: str | None = None
    window: Window | None = None
    max_iteration: int | None = None
    steps: int | None = None
    time_mean_seconds: float | None = None
    time_std_dev_seconds: float | None = None
    tflops_per_gpu_mean: float | None = None
    tflops_per_gpu_std_dev: float | None = None
    tokens_per_second: float | None = None
    tokens_per_second_per_gpu: float | None = None
    model_tflops_per_gpu: float | None = None
    mfu: float | None = None
    days_per_1t_tokens: float | None = None
    model_flops: float | None = None
    flops_convention: str | None = None
    reference: Mapping[str, Any] | None = None
    ratio: float | None = None
    verdict: str | None = None
