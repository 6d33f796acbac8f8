# SPDX-License-Identifier: Apache-2.0
"""One run's result: the run's identity, how it ended, its metrics, and its verdict."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, NamedTuple, Self

from llmb.contract.metrics import (
    MFU,
    MODEL_TFLOPS_PER_GPU,
    STEP_TIME,
    TOKENS_PER_SECOND_PER_GPU,
    TRAINING_BY_NAME,
    Measured,
)
from llmb.contract.record import PairMember
from llmb.contract.settings import Settings
from llmb.contract.state import COMPLETED, ENDS
from llmb.contract.window import Window
from llmb.core.values import dataclass
from llmb.measure.checkpoints import Checkpoints
from llmb.measure.facts import LogFacts, NodeFacts, VerdictCause
from llmb.measure.failure_causes import Cause
from llmb.measure.losses import LossCurve
from llmb.measure.statistics import Statistics
from llmb.measure.sustained import Sustained

SUCCESS, FAILED, CANCELLED = "Success", "Failed", "Cancelled"
RUNNING, PENDING, UNKNOWN = "Running", "Pending", "Unknown"
LOSS, PEAK_MEMORY = "loss", "peak_memory"  # the names of verdicts beside those on metrics


class Override(NamedTuple):
    """A ``setting`` of a log that the user set, although its lines or its name contradict."""

    setting: str
    value: object
    logged: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The run of a result, and its configuration."""

    experiment: str
    path: str  #: the training log
    run: str | None = None  #: the run's id, None for a log without a record
    configuration: Settings | None = None
    #: Settings that a comparison needs and a log without a record omits: workload, dtype, scale,
    #: gbs, gpu_type and the workload's own parameters.
    missing: tuple[str, ...] = ()
    overridden: tuple[Override, ...] = ()  #: settings that the user overrides
    #: nemo or bridge, which selects the window. None if unknown, and without a model.
    framework: str | None = None
    session: str | None = None  #: the id of the run's session; only its runs are repeats
    pair: PairMember | None = None  #: its pair of a submission with ``--ab``

    @property
    def name(self) -> str:
        """The run's id, or the path of a log without a record."""
        return self.run or self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The values that a run measured over a window of iterations, None if unknown."""

    window: Window | None = None
    max_iteration: int | None = None  #: the highest in the log, from 0
    steps: int | None = None  #: planned
    #: The log's number of its first step, from which the window and the outliers are counted.
    first_iteration: int = 0
    #: Each metric by name, also the ones that llmb derives for training.
    measured: Mapping[str, Measured] = field(default_factory=dict)
    headline: str = STEP_TIME  #: the metric that verdicts are about
    days_per_1t_tokens: float | None = None
    model_flops: float | None = None  #: operations for one sample
    flops_convention: str | None = None  #: the formula of ``model_flops``
    invalid: tuple[str, ...] = ()  #: why the measurement is invalid
    #: Of the headline in the window; of the step times if that follows from them (``mfu``).
    statistics: Statistics | None = None
    losses: LossCurve | None = None  #: of all steps, None without a loss
    sustained: Sustained | None = None  #: of a long training

    @property
    def value(self) -> Measured | None:
        """The value of the headline metric."""
        return self.measured.get(self.headline)

    @property
    def has_figures(self) -> bool:
        """True if the headline was measured. For training, a rate of tokens is enough."""
        rate_alone = self.headline == STEP_TIME and TOKENS_PER_SECOND_PER_GPU in self.measured
        return self.headline in self.measured or rate_alone

    @property
    def metric_of_statistics(self) -> str:
        """The metric that ``statistics`` are about."""
        return STEP_TIME if self.headline in TRAINING_BY_NAME else self.headline

    def share_statistics(self, metric: str) -> bool:
        """Return True if the steps of ``metric`` deviate as those that ``statistics`` are about.

        All that llmb derives for training is a constant divided by the step time.
        """
        about = self.metric_of_statistics
        return metric == about or (about == STEP_TIME and metric in TRAINING_BY_NAME)

    def mean(self, name: str) -> float | None:
        return self.measured[name].mean if name in self.measured else None

    @property
    def step_time(self) -> float | None:
        """The mean step time in seconds."""
        return self.mean(STEP_TIME)

    @property
    def model_tflops_per_gpu(self) -> float | None:
        """TFLOPS of one GPU by our formula."""
        return self.mean(MODEL_TFLOPS_PER_GPU)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization, a fraction."""
        return self.mean(MFU)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceValue:
    """The ``value`` of a ``metric`` that a run is compared with, published or of other runs."""

    release: str
    window: str  #: as ``--window`` takes it: ``last`` or ``11-44``
    step_time_s: float | None  #: None if that is not the metric
    source: str
    metric: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricVerdict:
    """The verdict on one metric of a configuration."""

    word: str
    reason: str
    reference: ReferenceValue | None = None  #: None if only the value has limits
    ratio: float | None = None  #: of this run's value to the reference, better above 1
    repeats: int
    pooled_ratio: float | None = None  #: of all repeats
    interval: tuple[float, float] | None = None  #: of it (95 %), None if no deviation is known


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedVerdict:
    """The verdict on how a long training held out, apart from the one on its speed."""

    verdict: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The comparison of a result with its reference. Fields are None before it is judged."""

    word: str | None = None  #: on the configuration, all ``repeats`` together
    reason: str | None = None  #: begins with the causes
    causes: tuple[VerdictCause, ...] = ()  #: conditions that may explain it
    reference: ReferenceValue | None = None
    ratio: float | None = None  #: of this run's value to the reference, better above 1
    repeats: int | None = None
    pooled_ratio: float | None = None  #: of all repeats
    ratio_interval: tuple[float, float] | None = None  #: 95 %, None for one run
    same_window: bool | None = None  #: true if the reference covers the same iterations
    #: The run's MFU by the formula ``reference_flops_convention`` and the peak of the reference's
    #: printed MFU, None without one.
    mfu_reference_convention: float | None = None
    reference_flops_convention: str | None = None
    differences: tuple[str, ...] = ()  #: settings and conditions that differ from reference runs
    #: The verdict of each judged metric by its name; the fields above are those of the worst.
    metrics: Mapping[str, MetricVerdict] = field(default_factory=dict)
    #: Why the loss of a training was not compared with that of the reference runs.
    loss_not_compared: str | None = None
    sustained: SustainedVerdict | None = None  #: of a long training

    @property
    def faults(self) -> tuple[str, ...]:
        """The reasons of bad verdicts on loss and memory: no ratio of the speed shows them."""
        verdicts = (self.metrics.get(name) for name in (LOSS, PEAK_MEMORY))
        return tuple(
            verdict.reason for verdict in verdicts if verdict is not None and verdict.word != "PASS"
        )

    @property
    def why(self) -> tuple[str, ...]:
        """What explains it: faults of loss and memory, then causes."""
        return (*self.faults, *(cause.text for cause in self.causes))

    @property
    def bare_reason(self) -> str:
        return (
            (self.reason or "")
            .removeprefix("; ".join(cause.text for cause in self.causes))
            .removeprefix("; ")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run's result."""

    identity: Identity
    #: SUCCESS, FAILED, CANCELLED, RUNNING, PENDING or UNKNOWN. Unknown if the run is lost, or its
    #: log or record cannot be read.
    status: str
    reason: str | None = None
    state: str | None = None  #: its scheduler's last state
    cause: Cause | None = None  #: why it failed
    log: LogFacts | None = None  #: the content of its log besides the steps
    checkpoints: Checkpoints | None = None
    metrics: Metrics = Metrics()
    verdict: Verdict = Verdict()
    nodes: tuple[NodeFacts, ...] = ()  #: as far as the log and their telemetry describe them
    unreadable: bool = False  #: its log exists, and llmb or its plugin cannot read it

    def with_identity(self, **values: Any) -> Self:
        """Return the result with these fields of its identity."""
        return replace(self, identity=replace(self.identity, **values))

    @property
    def is_open(self) -> bool:
        """True if the run may still end: it has not, or its scheduler could not be asked."""
        not_answered = self.status == UNKNOWN and self.state is not None and self.state not in ENDS
        return self.status in (RUNNING, PENDING) or not_answered

    @property
    def is_failure(self) -> bool:
        """True if it ended without success, which ends a command with exit code 3.

        A run that completed, and whose log llmb cannot read, is no failure.
        """
        return (
            self.status != SUCCESS
            and not self.is_open
            and not (self.status == UNKNOWN and self.state == COMPLETED)
        )
