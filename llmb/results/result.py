# SPDX-License-Identifier: Apache-2.0
"""One run's result: the run's identity, how it ended, what it measured, and its verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from llmb.failures import Cause
from llmb.results.checkpoints import Checkpoints
from llmb.results.description import Configuration
from llmb.results.facts import LogFacts, VerdictCause
from llmb.runs.state import COMPLETED, ENDS
from llmb.stats.measure import Window
from llmb.stats.metrics import MFU, MODEL_TFLOPS_PER_GPU, STEP_TIME, TOKENS_PER_SECOND_PER_GPU, Measured
from llmb.stats.statistics import Statistics

SUCCESS, FAILED, CANCELLED = "Success", "Failed", "Cancelled"
RUNNING, PENDING, UNKNOWN = "Running", "Pending", "Unknown"
STATUSES = (SUCCESS, FAILED, CANCELLED, RUNNING, PENDING, UNKNOWN)


class Override(NamedTuple):
    """A ``setting`` of a log that the user set to ``given``, where its lines or its name say ``logged``."""

    setting: str
    given: object
    logged: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which run a result is of.

    ``path``: the training log; ``run``: the run's id, None for a log without a record; ``missing``: what a
    comparison needs and such a log omits, of workload, dtype, scale, gbs, gpu_type and the workload's own
    parameters. ``overridden``: settings that the user overrides. ``framework``: nemo or bridge, which selects the
    window; None where it is unknown, and without a model.
    """

    experiment: str
    path: str
    run: str | None = None
    configuration: Configuration | None = None
    missing: tuple[str, ...] = ()
    overridden: tuple[Override, ...] = ()
    framework: str | None = None

    @property
    def name(self) -> str:
        """The run's id, or the path of a log without a record."""
        return self.run or self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What a run measured over its ``window`` of iterations; None where it is unknown.

    ``max_iteration``: the highest in the log, from 0; ``steps``: how many were planned; ``first_iteration``: the
    number that the log gives its first step, from which the window and the outliers are counted. ``measured``: each
    metric by its name, those included that llmb derives for training; ``headline``: the name of the metric that
    verdicts are about. ``invalid``: why the measurement is invalid; ``statistics``: of the step times in the window.

    Of models: ``model_flops``: operations for one sample, by the formula ``flops_convention``.
    """

    window: Window | None = None
    max_iteration: int | None = None
    steps: int | None = None
    first_iteration: int = 0
    measured: Mapping[str, Measured] = field(default_factory=dict)
    headline: str = STEP_TIME
    days_per_1t_tokens: float | None = None
    model_flops: float | None = None
    flops_convention: str | None = None
    invalid: tuple[str, ...] = ()
    statistics: Statistics | None = None

    @property
    def value(self) -> Measured | None:
        """What was measured of the headline metric."""
        return self.measured.get(self.headline)

    @property
    def has_figures(self) -> bool:
        """Whether the headline was measured; of training, a rate of tokens is enough where the log has no times."""
        rate_alone = self.headline == STEP_TIME and TOKENS_PER_SECOND_PER_GPU in self.measured
        return self.headline in self.measured or rate_alone

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
class Reference:
    """What a run is compared with: the ``value`` of a ``metric``, published or of other runs.

    ``window`` as ``--window`` takes it, ``last`` or ``11-44``; ``step_time_s``: None where that is not the metric.
    """

    release: str
    window: str
    step_time_s: float | None
    source: str
    metric: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a result is compared with, and how good it is; None before it is judged.

    ``ratio``: this run's value relative to the published one, better above 1. ``word`` and ``reason`` are on the
    configuration: all ``repeats`` together have the ratio ``pooled_ratio``, within ``ratio_interval`` (95 %; None for
    one run). ``causes``: what may explain it; ``reason`` begins with them. ``same_window``: whether the reference was
    taken over the same iterations. ``mfu_reference_convention``: the run's MFU by the formula
    ``reference_flops_convention`` and the peak of the reference's printed MFU, None without one. ``differences``: from
    other runs that are the reference, in settings and in where both ran.
    """

    word: str | None = None
    reason: str | None = None
    causes: tuple[VerdictCause, ...] = ()
    reference: Reference | None = None
    ratio: float | None = None
    repeats: int | None = None
    pooled_ratio: float | None = None
    ratio_interval: tuple[float, float] | None = None
    same_window: bool | None = None
    mfu_reference_convention: float | None = None
    reference_flops_convention: str | None = None
    differences: tuple[str, ...] = ()

    @property
    def bare_reason(self) -> str:
        return (self.reason or "").removeprefix("; ".join(cause.text for cause in self.causes)).removeprefix("; ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run's result: which run it is, how it ended, what it measured, and the verdict on it.

    ``status``: one of STATUSES; Unknown where the run is lost, or its log or record cannot be read, as ``reason`` says.
    ``state``: its scheduler's last state; ``cause``: why it failed; ``log``: what its log says besides the steps;
    ``checkpoints``: what was saved and loaded. ``unreadable``: its log exists, and llmb or its plugin cannot read it.
    """

    identity: Identity
    status: str
    reason: str | None = None
    state: str | None = None
    cause: Cause | None = None
    log: LogFacts | None = None
    checkpoints: Checkpoints | None = None
    metrics: Metrics = Metrics()
    verdict: Verdict = Verdict()
    unreadable: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the run may still end: it has not, or its scheduler could not be asked."""
        not_answered = self.status == UNKNOWN and self.state is not None and self.state not in ENDS
        return self.status in (RUNNING, PENDING) or not_answered

    @property
    def is_failure(self) -> bool:
        """Whether it ended without success, which ends a command with exit code 3.

        A run that completed, and whose log llmb cannot read, is no failure.
        """
        return self.status != SUCCESS and not self.is_open and not (self.status == UNKNOWN and self.state == COMPLETED)
