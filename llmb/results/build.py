# SPDX-License-Identifier: Apache-2.0
"""Makes the result of a run from its record, its scheduler's state and its log, or from a log alone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from llmb.job import Job
from llmb.logs.reader import read_log
from llmb.logs.samples import Samples
from llmb.logs.spec import ParseSpec
from llmb.measure import (
    Window,
    days_to_train,
    default_window,
    measure,
    mfu,
    model_tflops_per_gpu,
    tokens_per_second,
)
from llmb.model import flops_convention, model_flops
from llmb.results import reason
from llmb.results.find import log_of
from llmb.results.result import FAILED, RUNNING, SUCCESS, Result
from llmb.runs.record import RunRecord
from llmb.state import COMPLETED, TIMEOUT, JobState


def result_of_run(
    record: RunRecord, state: JobState, spec: ParseSpec, peak_tflops: float | None, window: Window | None = None
) -> Result:
    """The result of a recorded run; ``peak_tflops`` is the peak of one GPU at the job's dtype, None if not known.

    Raises LlmbError when the log is there and cannot be read.
    """
    job, path = record.job, log_of(record)
    samples = read_log(path, spec) if path.exists() else Samples()
    result = _measured(record.launch.name, path, samples, spec, job.max_steps, window)
    result = _with_throughput(result, job, peak_tflops)
    status = _status(state, complete=result.time_mean_seconds is not None)
    why = reason.of_run(status, state, samples, result, (path, record.batch_log))
    return replace(result, status=status, reason=why)


def result_of_log(path: Path, spec: ParseSpec, window: Window | None = None) -> Result:
    """The result of a log that has no record: what follows from a model's shape is not known.

    Raises LlmbError when it cannot be read.
    """
    samples = read_log(path, spec)
    steps = None if samples.last is None else samples.last + 1
    result = _measured(experiment_of(path), path, samples, spec, steps, window)
    reached = samples.max_iteration is not None and samples.last is not None and samples.max_iteration >= samples.last
    status = SUCCESS if reached and result.time_mean_seconds is not None else FAILED
    return replace(result, status=status, reason=reason.of_log(status, samples, result, path))


def experiment_of(path: Path) -> str:
    """The experiment's name in a log's: without ``log-``, the account before it and the attempt behind the job's id."""
    name = re.sub(r"(_\d+)_\d+$", r"\1", path.stem.removeprefix("log-"))
    return re.sub(r"^[^.]*\.(?=pretrain)", "", name)


def _status(state: JobState, *, complete: bool) -> str:
    if not state.is_end:
        return RUNNING
    return SUCCESS if complete and state.state in (COMPLETED, TIMEOUT) else FAILED


def _counted(window: Window | None, steps: int | None) -> Window | None:
    if not steps:
        return None if window is None or window.first < 0 else window
    return default_window(steps) if window is None else window.of(steps)


def _measured(
    experiment: str, path: Path, samples: Samples, spec: ParseSpec, steps: int | None, window: Window | None
) -> Result:
    counted = _counted(window, steps)
    figures = measure(samples, counted) if counted else None
    result = Result(
        experiment=experiment, path=str(path), status=RUNNING, window=counted, max_iteration=samples.max_iteration,
        steps=steps,
    )  # fmt: skip
    if figures is None:
        return result
    return replace(
        result,
        time_mean_seconds=figures.time_mean,
        time_std_dev_seconds=figures.time_std_dev,
        tflops_per_gpu_mean=figures.tflops_mean if spec.tflops_valid else None,
        tflops_per_gpu_std_dev=figures.tflops_std_dev if spec.tflops_valid else None,
    )


def _with_throughput(result: Result, job: Job, peak_tflops: float | None) -> Result:
    flops, step_time = model_flops(job.model), result.time_mean_seconds
    result = replace(result, model_flops=flops, flops_convention=flops_convention(job.model))
    if step_time is None:
        return result
    rate = tokens_per_second(job.seq_length, job.gbs, step_time)
    tflops = model_tflops_per_gpu(job.gbs, flops, step_time, job.scale)
    return replace(
        result,
        tokens_per_second=rate,
        tokens_per_second_per_gpu=rate / job.scale,
        model_tflops_per_gpu=tflops,
        mfu=mfu(tflops, peak_tflops) if peak_tflops else None,
        days_per_1t_tokens=days_to_train(1e12, rate),
    )
