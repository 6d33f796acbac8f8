# SPDX-License-Identifier: Apache-2.0
"""What a benchmark measures: metrics by name, each with a unit and the direction in which it is better."""

import re
from collections.abc import Collection, Sequence
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

    def measured(self, mean: float, std: float, n: int) -> "Measured":
        """What ``n`` iterations measured of it."""
        return Measured(mean=mean, std=std, n=n, unit=self.unit, better=self.better)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What ``n`` iterations of a run measured (0: unknown): mean and population standard deviation, in ``unit``."""

    mean: float
    std: float
    n: int
    unit: str = ""
    better: Better = "higher"


def shown(value: float, unit: str = "") -> str:
    """A value for people, in four digits, with its unit: ``480.2 GB/s``, ``2.746 s``, ``1,234,567 tokens/s``."""
    size = abs(value)
    digits = next((digits for least, digits in ((1000, 0), (100, 1), (10, 2), (1, 3)) if size >= least), None)
    text = f"{value:.4g}" if digits is None else f"{value:,.{digits}f}"
    return f"{text} {unit}" if unit else text


def heading(metrics: Collection[MetricSpec], mixed: str) -> str:
    """The heading of a column of values: ``busbw (GB/s)``, or ``mixed`` where they are of several metrics."""
    if len(metrics) != 1:
        return mixed
    (only,) = metrics
    return f"{only.name} ({only.unit})" if only.unit else only.name


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

TRAINING_BY_NAME = {spec.name: spec for spec in TRAINING}


def check_metrics(metrics: Sequence[MetricSpec]) -> None:
    """Raise KeyFaultError for two metrics of one name, or one with a name that llmb derives for training."""
    known: dict[str, str] = {}
    for number, name in enumerate([spec.name for spec in metrics]):
        if name.lower() in TRAINING_BY_NAME:
            message = f"'{name}' is a metric that llmb derives for training"
            raise KeyFaultError(message, number, "name", hint="choose another name", code="name-reserved", value=name)
        if name.lower() in known:
            other = known[name.lower()]
            same = f"two metrics are called '{name}'"
            message = same if name == other else f"'{name}' differs from '{other}' only in upper and lower case"
            raise KeyFaultError(message, number, "name", hint="rename one", code="name-duplicate", value=name)
        known[name.lower()] = name
