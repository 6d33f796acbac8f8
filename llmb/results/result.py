# SPDX-License-Identifier: Apache-2.0
"""One run's result, and the configuration that decides what it is compared with."""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from llmb.failures.find import Cause
from llmb.results.facts import Checkpoints, LogFacts
from llmb.runs.job import Job
from llmb.runs.state import COMPLETED, ENDS
from llmb.stats.measure import Statistics, Window

_USUAL_FP8, _USUAL_TOKENIZER = "delayed", "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A job without what its repeats differ in; the fields are those of ``Job``. None where a log alone does not say.

    ``gbs`` in samples, ``seq_length`` in tokens, ``scale`` in GPUs. ``fp8``: how dtype fp8 scales, where not as usual;
    ``tokenizer``: where not the null one; ``nccl_trace``, ``saves``, ``loads``: what it did beside training.
    ``vboost``: whether it was to be raised on each node first.
    """

    workload: str
    model_size: str
    dtype: str
    gpu_type: str | None
    scale: int
    gbs: int
    seq_length: int
    num_layers: int
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    vp: int | None = None
    ep: int | None = None
    mbs: int | None = None
    gpus_per_node: int | None = None
    profile: bool = False
    image: str | None = None
    fp8: str | None = None
    tokenizer: str | None = None
    nccl_trace: bool = False
    saves: bool = False
    loads: bool = False
    vboost: bool | None = None
    env: Mapping[str, str] = field(default_factory=dict)


def of_job(job: Job) -> Configuration:
    """The configuration of a recorded run."""
    switches = job.switches
    said: dict[str, Any] = {
        "fp8": switches.fp8 if switches.fp8 != _USUAL_FP8 else None,
        "tokenizer": switches.tokenizer if switches.tokenizer != _USUAL_TOKENIZER else None,
        "nccl_trace": bool(switches.nccl_trace),
        "saves": bool(switches.save_checkpoint),
        "loads": switches.load_checkpoint is not None,
        "env": dict(job.env),
    }
    return Configuration(
        **{own.name: getattr(job, own.name) for own in fields(Configuration) if own.name not in said}, **said
    )


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


TITLE = ("workload", "model_size", "dtype", "gpu_type", "scale")  # what every line says of itself
_SAID = {
    "gbs": "batch {}",
    "seq_length": "sequence {}",
    "num_layers": "{} layers",
    "profile": "profiled",
    "saves": "saves a checkpoint",
    "loads": "loads a checkpoint",
    "nccl_trace": "NCCL trace",
    "image": "{}",
    "vboost": "vboost",
    "gpus_per_node": "{} GPUs per node",
}


def settings_of(result: Result, without: Collection[str] = TITLE) -> dict[str, str]:
    """Each setting of a run by its name, in words, its steps and window too; empty where there is nothing to say."""
    own = settings_in_words(result.configuration, without, window=result.window)
    return {"steps": f"{result.steps} steps" if result.steps else "", **own}


def settings_in_words(
    own: Configuration | None, without: Collection[str] = TITLE, *, window: Window | None
) -> dict[str, str]:
    """Each setting by its name, in words, but for those ``without``; variables are ``NAME=value``."""
    said = {"window": "" if window is None else f"window {window}"}
    if own is None:
        return said
    for setting in fields(Configuration):
        if setting.name not in (*without, "env"):
            said[setting.name] = _in_words(setting.name, getattr(own, setting.name))
    return said | {name: f"{name}={value}" for name, value in sorted(own.env.items())}


def notes(titled: Sequence[tuple[Hashable, Mapping[str, str]]]) -> list[str]:
    """For each title with its settings those that others of the same title do not have all in common."""
    alike = Counter(title for title, _ in titled)
    shared = Counter((title, setting) for title, own in titled for setting in own.items())
    return [
        ", ".join(text for name, text in own.items() if text and shared[title, (name, text)] < alike[title])
        for title, own in titled
    ]


def _in_words(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    return _SAID.get(name, f"{name} {{}}").format(value)
