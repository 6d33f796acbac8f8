# SPDX-License-Identifier: Apache-2.0
"""One run's result; its fields, in their order, are what ``results --format json`` prints."""

from dataclasses import dataclass

from llmb.failures.find import Cause
from llmb.results.checkpoints import Checkpoints
from llmb.results.configuration import Configuration
from llmb.results.facts import LogFacts
from llmb.runs.state import COMPLETED, ENDS
from llmb.stats.measure import Window
from llmb.stats.summary import Statistics

SUCCESS, FAILED, CANCELLED = "Success", "Failed", "Cancelled"
RUNNING, PENDING, UNKNOWN = "Running", "Pending", "Unknown"
STATUSES = (SUCCESS, FAILED, CANCELLED, RUNNING, PENDING, UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The published figure that a run compares with; ``window`` as ``--window`` takes it, ``last`` or ``11-44``."""

    release: str
    window: str
    step_time_s: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run measured; None where it is not known.

    ``status``: one of STATUSES. Unknown is a run that is lost, or whose log or record cannot be read; ``reason`` says
    which. ``path``: the training log; ``window``: the iterations that count; ``max_iteration``: the highest in the log,
    from 0; ``steps``: how many were planned; ``tflops_per_gpu_*``: as the framework logs them; ``tokens_per_second``:
    of the whole job; ``model_flops``: operations of one sample by the formula that ``flops_convention`` names; ``mfu``:
    a fraction.

    ``ratio``: this run's throughput by the published; ``verdict``: on its configuration, all ``repeats`` together,
    whose throughput by the published is ``pooled_ratio`` and lies within ``ratio_interval`` (95 %; None for one run);
    ``same_window``: the reference was taken over the same iterations; ``run``: the id, None for a log without a record;
    ``state``: its scheduler's last word; ``cause``: why it failed, as far as that is known; ``invalid``: what in the
    log keeps the measurement from counting; ``statistics``: of the steps of the window; ``log``: what else it says;
    ``checkpoints``: what was saved and loaded, None without any; ``not_said``: what a comparison needs, and a log
    without a record leaves open, of workload, dtype, scale, gbs and gpu_type; ``first_iteration``: the number that the
    log gives its first step, from which the window and the outliers count.
    ``mfu_reference_convention``: its MFU with the FLOPs of one sample, by the formula ``reference_flops_convention``,
    and the peak that the printed MFU of the reference was computed with; None where none was printed.
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
    reference: Reference | None = None
    ratio: float | None = None
    verdict: str | None = None
    verdict_reason: str | None = None
    repeats: int | None = None
    pooled_ratio: float | None = None
    ratio_interval: tuple[float, float] | None = None
    same_window: bool | None = None
    run: str | None = None
    state: str | None = None
    cause: Cause | None = None
    configuration: Configuration | None = None
    invalid: tuple[str, ...] = ()
    statistics: Statistics | None = None
    log: LogFacts | None = None
    checkpoints: Checkpoints | None = None
    not_said: tuple[str, ...] = ()
    mfu_reference_convention: float | None = None
    reference_flops_convention: str | None = None
    first_iteration: int = 0

    @property
    def was_cancelled(self) -> bool:
        """Whether somebody ended it, as far as its scheduler was seen to say so."""
        return self.status == CANCELLED

    @property
    def is_open(self) -> bool:
        """Whether its end is still to come, or nobody could be asked about it."""
        asked_in_vain = self.status == UNKNOWN and self.state is not None and self.state not in ENDS
        return self.status in (RUNNING, PENDING) or asked_in_vain

    @property
    def is_failure(self) -> bool:
        """Whether it ended without success, as far as anybody knows: this ends a command with exit code 3.

        A run that its scheduler saw end well, and whose log nobody here can read, is none.
        """
        return self.status != SUCCESS and not self.is_open and not (self.status == UNKNOWN and self.state == COMPLETED)
