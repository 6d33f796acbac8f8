# SPDX-License-Identifier: Apache-2.0
"""What a benchmark measures: metrics by name, each with a unit and the direction in which it is better."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from llmb.errors import KeyFaultError

Better = Literal["higher", "lower"]
LOWER: Better = "lower"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """A metric: its ``name`` in logs, JSON and published tables, its ``unit`` as printed, and which way is better."""

    name: str
    unit: str = ""
    better: Better = "higher"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            message = f"'{self.name}' must begin with a letter, then letters, digits and _"
            raise KeyFaultError(message, "name", hint="as in bus_bandwidth", code="name-invalid", value=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What ``n`` iterations of a run measured: mean and population standard deviation, in ``unit``."""

    mean: float
    std: float
    n: int
    unit: str = ""
    better: Better = "higher"


STEP_TIME = "step_time"
TOKENS_PER_SECOND, TOKENS_PER_SECOND_PER_GPU = "tokens_per_second", "tokens_per_second_per_gpu"
MODEL_TFLOPS_PER_GPU, MFU = "model_tflops_per_gpu", "mfu"
TFLOPS_PER_GPU = "tflops_per_gpu"

# What llmb derives for every workload that trains a model. Verdicts are about the first one.
TRAINING = (
    MetricSpec(name=STEP_TIME, unit="s", better=LOWER),
    MetricSpec(name=TOKENS_PER_SECOND, unit="tokens/s"),
    MetricSpec(name=TOKENS_PER_SECOND_PER_GPU, unit="tokens/s/GPU"),
    MetricSpec(name=MODEL_TFLOPS_PER_GPU, unit="TFLOPS/GPU"),
    MetricSpec(name=MFU, unit="fraction"),
    MetricSpec(name=TFLOPS_PER_GPU, unit="TFLOPS/GPU"),  # as the framework logs them
)


def check_metrics(metrics: Sequence[MetricSpec]) -> None:
    """Raise KeyFaultError for two metrics of one name, or one with a name that llmb derives for training."""
    names = [spec.name for spec in metrics]
    reserved = {spec.name for spec in TRAINING}
    for number, name in enumerate(names):
        if name in reserved:
            message = f"'{name}' is a metric that llmb derives for training"
            raise KeyFaultError(message, number, "name", hint="choose another name", code="name-reserved", value=name)
        if name in names[:number]:
            message = f"two metrics are called '{name}'"
            raise KeyFaultError(message, number, "name", hint="rename one", code="name-duplicate", value=name)
