# SPDX-License-Identifier: Apache-2.0
"""The metrics of benchmarks by name, each with a unit and the direction in which it is better."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Literal

from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

Better = Literal["higher", "lower"]
LOWER: Better = "lower"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits of a metric's verdict: of its ratio to a reference, and of its value."""

    #: A ratio below this is FAIL.
    fail_below: float = 0.95
    #: A ratio below this is WARN.
    warn_below: float = 0.98
    #: A ratio above this is SUSPICIOUS.
    suspicious_above: float = 1.05
    #: A value below this is FAIL, with or without a reference. In the unit of the metric.
    minimum: float | None = None
    #: A value above this is FAIL, likewise.
    maximum: float | None = None

    @property
    def has_limits(self) -> bool:
        """Return True if values are limited, not only ratios."""
        return self.minimum is not None or self.maximum is not None


USUAL_BOUNDS = Bounds()
_BOUNDS = tuple(field.name for field in fields(Bounds))
_USUAL = [getattr(USUAL_BOUNDS, name) for name in _BOUNDS]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec(Bounds):
    """A metric that a benchmark measures."""

    #: Its name in logs, JSON and published tables.
    name: str
    #: As printed.
    unit: str = ""
    #: The direction in which it is better.
    better: Better = "higher"
    #: False if no verdict is about it, although a reference has it.
    judged: bool = True

    def __post_init__(self) -> None:
        for name in ("minimum", "maximum"):
            limit = getattr(self, name)
            if isinstance(limit, float) and not math.isfinite(limit):
                raise KeyFaultError(
                    f"{limit} is no finite number",
                    name,
                    hint="write a number, or remove the key",
                    code="number-not-finite",
                    value=limit,
                )
        if not 0 < self.fail_below <= self.warn_below <= self.suspicious_above:
            message = "fail_below, warn_below and suspicious_above must ascend from above 0"
            raise KeyFaultError(
                message, hint="as in 0.95, 0.98 and 1.05", code="bounds-invalid", value=self.name
            )
        least, most = self.minimum, self.maximum
        if least is not None and most is not None and least > most:
            raise KeyFaultError(f"is above the maximum {most:g}", "minimum", code="bounds-invalid")
        if not _NAME.fullmatch(self.name):
            message = f"'{self.name}' must begin with a letter, then letters, digits and _"
            raise KeyFaultError(
                message, "name", hint="as in bus_bandwidth", code="name-invalid", value=self.name
            )

    def measured(self, mean: float, std: float | None, n: int) -> "Measured":
        """Return its value over ``n`` iterations, 0 if their number is unknown."""
        return Measured(
            mean=mean,
            std=std,
            n=n,
            unit=self.unit,
            better=self.better,
            judged=self.judged,
            bounds=self.bounds,
        )

    @property
    def bounds(self) -> Bounds | None:
        """The limits of its verdict, None for the usual ones."""
        limits = [getattr(self, name) for name in _BOUNDS]
        return None if limits == _USUAL else Bounds(**dict(zip(_BOUNDS, limits, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The value of a metric over the iterations of a run."""

    mean: float
    #: The population standard deviation, None for a single value: 0 would promise that all others
    #: are equal to it.
    std: float | None
    #: The number of iterations, 0 if unknown.
    n: int
    unit: str = ""
    better: Better = "higher"
    #: False if no verdict is about it.
    judged: bool = True
    #: The limits of its verdict, None for the usual ones.
    bounds: Bounds | None = None

    def __post_init__(self) -> None:
        if self.n < 2:
            object.__setattr__(self, "std", None)

    def deviation_of(self, value: float) -> float | None:
        """Return the deviation of ``value``, which is a constant times this one, or divided by it.

        None for a single value.
        """
        return None if self.std is None else value * self.std / self.mean

    def spec(self, name: str) -> MetricSpec:
        """Return the metric ``name`` that it is a value of."""
        bounds = self.bounds or USUAL_BOUNDS
        return MetricSpec(
            name=name,
            unit=self.unit,
            better=self.better,
            judged=self.judged,
            **{limit: getattr(bounds, limit) for limit in _BOUNDS},
        )


def shown(value: float, unit: str = "", more: int = 0) -> str:
    """Return a value for people, in four digits: ``480.2 GB/s``, ``1,234,567 tokens/s``.

    ``more``: digits beyond these.
    """
    size = abs(value)
    digits = next(
        (digits for least, digits in ((1000, 0), (100, 1), (10, 2), (1, 3)) if size >= least), None
    )
    text = f"{value:.{4 + more}g}" if digits is None else f"{value:,.{digits + more}f}"
    return f"{text} {unit}" if unit else text


def heading(metrics: Collection[MetricSpec], mixed: str) -> str:
    """Return a column's heading: ``busbw (GB/s)``, or ``mixed`` for values of several metrics."""
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

JOULES_PER_STEP, WATTS_PER_GPU, TOKENS_PER_JOULE = (
    "joules_per_step",
    "watts_per_gpu",
    "tokens_per_joule",
)
COST_PER_MILLION_TOKENS = "cost_per_million_tokens"
# The energy and power of the GPUs, which some programs log, and their price. No verdict is about
# them.
ENERGY = (
    MetricSpec(name=JOULES_PER_STEP, unit="J/GPU", better=LOWER, judged=False),
    MetricSpec(name=WATTS_PER_GPU, unit="W/GPU", better=LOWER, judged=False),
    MetricSpec(name=TOKENS_PER_JOULE, unit="tokens/J", judged=False),
    MetricSpec(name=COST_PER_MILLION_TOKENS, unit="per million tokens", better=LOWER, judged=False),
)
ENERGY_BY_NAME = {spec.name: spec for spec in ENERGY}

TRAINING_BY_NAME = {spec.name: spec for spec in TRAINING}


def check_metrics(metrics: Sequence[MetricSpec]) -> None:
    """Raise KeyFaultError for a name that two metrics have, or that llmb derives for training."""
    spellings: dict[str, str] = {}
    for number, name in enumerate([spec.name for spec in metrics]):
        if name.lower() in TRAINING_BY_NAME:
            raise KeyFaultError(
                f"'{name}' is a metric that llmb derives for training",
                number,
                "name",
                hint="choose another name",
                code="name-reserved",
                value=name,
            )
        if name.lower() in spellings:
            first = spellings[name.lower()]
            twice = f"two metrics are called '{name}'"
            message = (
                twice
                if name == first
                else f"'{name}' differs from '{first}' only in upper and lower case"
            )
            raise KeyFaultError(
                message, number, "name", hint="rename one", code="name-duplicate", value=name
            )
        spellings[name.lower()] = name


def tflops_in_digits(value: float) -> str:
    """Return TFLOPS of one GPU for people, with three digits for the little that a CPU does."""
    return f"{value:.2f}" if value >= 10 else f"{value:.3g}"
