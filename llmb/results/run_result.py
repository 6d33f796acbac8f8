# SPDX-License-Identifier: Apache-2.0
"""Makes the result of a run from its record, its scheduler's state and its log."""

from pathlib import Path

from llmb.failures import root_cause
from llmb.logs.samples import Samples
from llmb.results import facts, find, reason
from llmb.results.checkpoints import checkpoints_of
from llmb.results.configuration import configuration_of
from llmb.results.description import Description
from llmb.results.log_reader import LogReader
from llmb.results.metrics_of import metrics_of, read_samples
from llmb.results.result import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, UNKNOWN, Identity, Result
from llmb.runs import state as states
from llmb.runs.job import Job
from llmb.runs.record import RunRecord
from llmb.runs.state import JobState
from llmb.stats.window import Window
from llmb.workload.flops import Flops


def result_of_run(
    record: RunRecord,
    state: JobState,
    reader: LogReader,
    peak_tflops: float | None,
    window: Window | None = None,
    *,
    flops: Flops | None = None,
) -> Result:
    """The result of a recorded run; ``peak_tflops``: of one GPU at the job's dtype, None where it is unknown.

    ``flops``: of one sample by the plugin's own formula, None for llmb's.

    Where a log exists and cannot be read, the status is Unknown and the reason says why.
    """
    job, path, spec = record.job, find.log_of(record), reader.spec
    samples, unreadable = read_samples(path, spec) if _exists(path) else (spec.samples or Samples(), "")
    if window is None and record.origin is not None and record.origin.window is not None:
        window = Window(*record.origin.window)
    metrics = metrics_of(
        samples,
        reader,
        _description(job, flops),
        steps=job.max_steps,
        window=window,
        peak_tflops=peak_tflops,
        nodes=job.nodes,
        profiled="" if job.profile else find.profiled_beside(path),
    )
    checkpoints = checkpoints_of(
        samples.checkpoints,
        path.parent if record.origin is None else path.resolve().parent,
        save=bool(job.switches.save_checkpoint),
        load=job.switches.load_checkpoint,
        ended=state.is_end,
    )
    logs = find.logs_of(record)
    status = _status(state, complete=metrics.has_figures, readable=not unreadable)
    if status == FAILED and state.state == states.COMPLETED and reason.is_unknown_format(path, samples):
        status = FAILED if root_cause(logs) is not None else UNKNOWN
    has_failed = not unreadable and (status in (FAILED, CANCELLED) or state.state == states.LOST)
    cause = root_cause(logs, state) if has_failed else None
    why = None
    if not (unreadable and status == UNKNOWN):
        why = reason.of_run(status, state, samples, metrics, spec, checkpoints, cause)
    return Result(
        identity=Identity(
            experiment=record.launch.name,
            path=str(path),
            run=record.id,
            configuration=configuration_of(job),
            framework=job.framework if job.training is not None else None,
        ),
        status=status,
        reason="; ".join(filter(None, (unreadable, why))) or None,
        state=state.state,
        cause=cause or (reason.cause_of_end(state) if has_failed else None),
        log=facts.facts_of(samples),
        checkpoints=checkpoints,
        metrics=metrics,
        unreadable=bool(unreadable),
    )


def _description(job: Job, flops: Flops | None) -> Description:
    """What the metrics depend on."""
    training = job.training
    return Description(
        gpus=job.scale,
        gbs=training.gbs if training else None,
        seq_length=training.seq_length if training else None,
        model=training.model if training else None,
        flops=flops,
        traced=bool(job.switches.nccl_trace) or None,
        framework=job.framework,
    )


def _status(state: JobState, *, complete: bool, readable: bool) -> str:
    if state.state in states.WAITING or state.state == states.NOT_SUBMITTED:
        return PENDING
    if state.state in states.ACTIVE:
        return RUNNING
    if state.state == states.CANCELLED:
        return CANCELLED
    if not state.is_end or state.state == states.LOST or not readable:
        return UNKNOWN
    return SUCCESS if complete and state.state in (states.COMPLETED, states.TIMEOUT) else FAILED


def _exists(path: Path) -> bool:
    """Whether the log exists; true where this user may not see that, so that reading it names the reason."""
    try:
        return path.exists()
    except OSError:
        return True
