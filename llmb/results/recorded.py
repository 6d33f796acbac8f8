# SPDX-License-Identifier: Apache-2.0
"""Makes the result of a run from its record, its scheduler's state and its log, or from a log alone."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmb.errors import LlmbError
from llmb.failures import Cause, root_cause
from llmb.logs.formats import MEGATRON_NAME, ParseSpec
from llmb.logs.lines import SlowPatternError
from llmb.logs.reader import read_log
from llmb.logs.samples import Samples
from llmb.results import reason
from llmb.results import result as status_of
from llmb.results.facts import PROFILED, checkpoints_of, facts_of, invalid_because
from llmb.results.find import ATTEMPT, log_of, logs_beside, logs_of, profiled_beside
from llmb.results.foreign import NOTHING, Description, describe_log, peak_dtype
from llmb.results.result import FAILED, RUNNING, SUCCESS, UNKNOWN, Result
from llmb.runs.job import Job
from llmb.runs.record import RunRecord
from llmb.runs.state import ACTIVE, CANCELLED, COMPLETED, LOST, NOT_SUBMITTED, TIMEOUT, WAITING, JobState
from llmb.stats.measure import (
    Window,
    covered,
    days_to_train,
    default_window,
    measure,
    mfu,
    model_tflops_per_gpu,
    summarize,
    tokens_per_second,
)
from llmb.workload.gpus import CPU, known_types
from llmb.workload.model import flops_convention, model_flops
from llmb.workload.spec import Workload

HYBRID_NOTE = "TFLOPS_per_GPU is left out: NeMo 2 counts a hybrid's layers wrongly"


def result_of_run(
    record: RunRecord, state: JobState, spec: ParseSpec, peak_tflops: float | None, window: Window | None = None
) -> Result:
    """The result of a recorded run; ``peak_tflops`` is the peak of one GPU at the job's dtype, None if not known.

    Of a log that is there and cannot be read nothing is known, and the reason says so.
    """
    job, path = record.job, log_of(record)
    samples, trouble = _read(path, spec) if _is_there(path) else (spec.samples or Samples(), "")
    result = _measured(record.launch.name, path, samples, spec, job.max_steps, window)
    found = _of_job(job)
    result = _with_throughput(result, found, peak_tflops)
    result = _with_details(
        result, samples, found, nodes=job.nodes, profiled="" if job.profile else profiled_beside(path)
    )
    checkpoints = checkpoints_of(
        samples.checkpoints,
        path.parent,
        save=bool(job.switches.save_checkpoint),
        load=job.switches.load_checkpoint,
        ended=state.is_end,
    )
    result = replace(result, checkpoints=checkpoints)
    status = _status(state, complete=has_figures(result), readable=not trouble)
    is_strange = status == FAILED and state.state == COMPLETED and not samples.steps
    if is_strange := is_strange and _is_strange(record, path, samples):
        status = UNKNOWN
    has_failed = state.is_end and status != SUCCESS and not trouble and not is_strange
    cause = root_cause(logs_of(record), state) if has_failed else None
    why = "" if trouble and status == UNKNOWN else reason.of_run(status, state, samples, result, spec, cause)
    return replace(
        result,
        status=status,
        reason="; ".join(text for text in (trouble, why) if text) or None,
        state=state.state,
        cause=cause or (reason.cause_of_end(state) if has_failed else None),
    )


def result_of_log(
    path: Path,
    spec: ParseSpec,
    window: Window | None = None,
    *,
    workloads: Mapping[str, Workload] | None = None,
    given: Description = NOTHING,
) -> Result:
    """The result of a log that has no record, with all that follows from what it is of, as far as that is known.

    ``workloads``: what it may be of, by key; without them its name and lines are not asked. ``given`` is what the user
    says of it, before all else; a GPU type is never to be had from the log. One that cannot be read is Unknown, with
    the reason: it may be one of thousands.
    """
    samples, trouble = _read(path, spec)
    if trouble:
        return Result(experiment=experiment_of(path), path=str(path), status=status_of.UNKNOWN, reason=trouble)
    found = given if workloads is None else describe_log(path, samples, workloads, given)
    hybrid = found.model is not None and found.model.pattern is not None and samples.framework != MEGATRON_NAME
    if hybrid and spec.tflops_valid:
        spec = replace(spec, tflops_valid=False, tflops_note=HYBRID_NOTE)
    samples = _with_times(samples, found)
    last = samples.max_iteration if samples.last is None else samples.last
    result = _measured(experiment_of(path), path, samples, spec, None if last is None else last + 1, window)
    result = _with_throughput(result, found, _peak(found))
    result = _with_details(result, samples, found, nodes=_nodes(found), profiled=_profiled(path, found))
    checkpoints = checkpoints_of(samples.checkpoints, path.parent)
    result = replace(result, checkpoints=checkpoints, not_said=found.not_said())
    status, cause = _status_of_log(path, samples, result)
    return replace(result, status=status, reason=reason.of_log(status, samples, result, spec, cause), cause=cause)


def _profiled(path: Path, found: Description) -> str:
    """Why a log is known to be of a profiled run, where its configuration does not say so."""
    if found.profiled:
        return "" if found.configuration() is not None else PROFILED
    return profiled_beside(path)


def _status_of_log(path: Path, samples: Samples, result: Result) -> tuple[str, Cause | None]:
    """The status of a log without a record, and the cause where it failed.

    A log whose lines do not say how many steps there were to be has succeeded where nothing in it says otherwise.
    """
    reached = samples.max_iteration is not None and samples.max_iteration >= (samples.last or 0)
    if reached and samples.last is not None and has_figures(result):
        return SUCCESS, None
    cause = root_cause(logs_beside(path))
    if cause is None and reached and samples.last is None and has_figures(result):
        return SUCCESS, None
    if cause is None and reason.is_unknown_format(path, samples):
        return UNKNOWN, None
    return FAILED, cause


def has_figures(result: Result) -> bool:
    """Whether a step time was measured, or a rate where the log has no times."""
    return result.time_mean_seconds is not None or result.tokens_per_second_per_gpu is not None


def _with_times(samples: Samples, found: Description) -> Samples:
    """With the step times that follow from rates of tokens, where the log has those alone and the job is known."""
    if found.gbs is None or found.seq_length is None or found.gpus is None:
        return samples
    tokens = found.gbs * found.seq_length / found.gpus
    lack = [step for step in samples.steps if step.tokens_rate and math.isnan(step.step_time)]
    if not lack or len(lack) != len(samples.steps):
        return samples
    steps = tuple(replace(step, step_time=tokens / step.tokens_rate) for step in lack if step.tokens_rate)
    return replace(samples, steps=steps)


def _is_strange(record: RunRecord, path: Path, samples: Samples) -> bool:
    """Whether a run that ended well has a log that nobody here can read, and nothing in any says that it failed."""
    return reason.is_unknown_format(path, samples) and root_cause(logs_of(record)) is None


def _read(path: Path, spec: ParseSpec) -> tuple[Samples, str]:
    """The samples of a log, and why it cannot be read where it cannot. Raises SlowPatternError."""
    try:
        return read_log(path, spec), ""
    except SlowPatternError:
        raise
    except LlmbError as error:
        return Samples(), error.message


def _nodes(found: Description) -> int | None:
    """How many nodes a job had at least: those of its GPU type, of the largest that we know where it is not known."""
    if found.gpus is None or found.gpu_type == CPU:
        return None
    types = known_types()
    own = types.get(found.gpu_type or "")
    return math.ceil(found.gpus / (own.gpus_per_node if own else max(known.gpus_per_node for known in types.values())))


def _of_job(job: Job) -> Description:
    traced = bool(job.switches.nccl_trace) or None
    return Description(gpus=job.scale, gbs=job.gbs, seq_length=job.seq_length, model=job.model, traced=traced)


def _peak(found: Description) -> float | None:
    known = known_types().get(found.gpu_type or "")
    return known.peak_tflops.get(peak_dtype(found.dtype or "")) if known else None


def experiment_of(path: Path) -> str:
    """The experiment's name in a log's: without ``log-``, the account before it and the attempt behind the job's id."""
    stem = path.name.removesuffix(".gz").removesuffix(".out").removeprefix("log-")
    name = re.sub(rf"(_\d+){ATTEMPT}$", r"\1", stem)
    return re.sub(r"^[^.]*\.(?=pretrain)", "", name)


def _status(state: JobState, *, complete: bool, readable: bool) -> str:
    if state.state in WAITING or state.state == NOT_SUBMITTED:
        return status_of.PENDING
    if state.state in ACTIVE:
        return RUNNING
    if state.state == CANCELLED:
        return status_of.CANCELLED
    if not state.is_end or state.state == LOST or not readable:
        return status_of.UNKNOWN
    return SUCCESS if complete and state.state in (COMPLETED, TIMEOUT) else FAILED


def _is_there(path: Path) -> bool:
    """Whether there is a log; also where this user may not see that, so that reading it says why."""
    try:
        return path.exists()
    except OSError:
        return True


def _counted(window: Window | None, steps: int | None, samples: Samples) -> Window | None:
    if not steps:
        return None if window is None or window.first < 0 else window
    first = samples.first
    return covered(samples, default_window(steps, first) if window is None else window.of(steps, first))


def _measured(
    experiment: str, path: Path, samples: Samples, spec: ParseSpec, steps: int | None, window: Window | None
) -> Result:
    counted = _counted(window, steps, samples)
    figures = measure(samples, counted) if counted else None
    result = Result(
        experiment=experiment,
        path=str(path),
        status=RUNNING,
        window=counted,
        max_iteration=samples.max_iteration,
        steps=steps,
        first_iteration=samples.first,
    )
    if figures is None:
        return result
    return replace(
        result,
        time_mean_seconds=figures.time_mean,
        time_std_dev_seconds=figures.time_std_dev,
        tflops_per_gpu_mean=figures.tflops_mean if spec.tflops_valid else None,
        tflops_per_gpu_std_dev=figures.tflops_std_dev if spec.tflops_valid else None,
        tokens_per_second_per_gpu=figures.tokens_rate,
    )


def _with_throughput(result: Result, found: Description, peak_tflops: float | None) -> Result:
    if found.model is None:
        return result
    flops, step_time = model_flops(found.model), result.time_mean_seconds
    figures: dict[str, Any] = {"model_flops": flops, "flops_convention": flops_convention(found.model)}
    if step_time is not None and found.gbs is not None and found.seq_length is not None:
        rate = tokens_per_second(found.seq_length, found.gbs, step_time)
        figures |= {"tokens_per_second": rate, "days_per_1t_tokens": days_to_train(1e12, rate)}
    if step_time is not None and found.gbs is not None and found.gpus is not None:
        tflops = model_tflops_per_gpu(found.gbs, flops, step_time, found.gpus)
        figures |= {"model_tflops_per_gpu": tflops, "mfu": mfu(tflops, peak_tflops) if peak_tflops else None}
    if (whole := figures.get("tokens_per_second")) is not None and found.gpus is not None:
        figures["tokens_per_second_per_gpu"] = whole / found.gpus
    return replace(result, **figures)


def _with_details(result: Result, samples: Samples, found: Description, *, nodes: int | None, profiled: str) -> Result:
    """With what lies behind the means, and what keeps them from counting; ``profiled``: why it is known to be."""
    invalid = invalid_because(samples, result.window, nodes)
    configuration = found.configuration()
    if profiled:
        invalid = (*invalid, profiled)
    measured = result.window if result.time_mean_seconds is not None else None
    return replace(
        result,
        invalid=(*invalid, "ran with an NCCL trace, which costs time") if found.traced else invalid,
        statistics=summarize(samples, measured, tflops=result.model_tflops_per_gpu) if measured else None,
        log=facts_of(samples),
        configuration=configuration,
    )
