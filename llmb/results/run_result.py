# SPDX-License-Identifier: Apache-2.0
"""Makes the result of a run from its record, its scheduler's state and its log, with the metrics of the window."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

from llmb.errors import LlmbError
from llmb.failures import root_cause
from llmb.logs.formats import ParseSpec
from llmb.logs.lines import PatternError, UnitMismatchError
from llmb.logs.reader import read_log
from llmb.logs.samples import Samples
from llmb.results import facts, find, reason
from llmb.results.checkpoints import checkpoints_of
from llmb.results.description import Description, configuration_of
from llmb.results.result import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, UNKNOWN, Identity, Metrics, Result
from llmb.runs import state as states
from llmb.runs.job import Job
from llmb.runs.record import RunRecord
from llmb.runs.state import JobState
from llmb.stats import measure, metrics as known, statistics
from llmb.stats.measure import Window, covered, default_window
from llmb.stats.metrics import MetricSpec
from llmb.workload.flops import Flops, flops_of
from llmb.workload.spec import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReader:
    """``spec``: its step lines; ``metrics``: those that the workload declares, without those of training.

    ``headline``: the name of the metric that verdicts are about.
    """

    spec: ParseSpec = field(default_factory=ParseSpec)
    metrics: tuple[MetricSpec, ...] = ()
    headline: str = known.STEP_TIME


def reader_of(workload: Workload, size: str | None, spec: ParseSpec | None) -> LogReader:
    """The reader of a run of ``workload``, whose plugin says ``spec`` (None: nothing); ``size``: None if unknown."""
    chosen = workload.all_metrics(size if size in workload.sizes else workload.default_size)
    own = tuple(one for one in chosen if one in workload.metrics)
    spec, names = spec or ParseSpec(), tuple(one.name for one in own)
    units = {one.name: one.unit for one in own if one.unit}
    if (spec.metrics, spec.metric_units) != (names, units):
        spec = replace(spec, metrics=names, metric_units=units)
    return LogReader(spec=spec, metrics=own, headline=chosen[0].name)


def metrics_of(
    samples: Samples,
    reader: LogReader,
    found: Description,
    *,
    steps: int | None,
    window: Window | None,
    peak_tflops: float | None,
    nodes: int | None,
    profiled: str,
) -> Metrics:
    """What the steps measured over ``window`` (the default one where None).

    ``steps``: as many as are planned, None if unknown; ``peak_tflops``: of one GPU at the dtype; ``nodes``: the least
    that the job had; ``profiled``: why it is known to be profiled, or empty.
    """
    used = _window_of(samples, steps, window, found.framework)
    measured = measure.measure(samples, used, reader.metrics) if used else {}
    if not reader.spec.tflops_valid:
        measured.pop(known.TFLOPS_PER_GPU, None)
    declared = [spec.name for spec in reader.metrics]
    invalid = [*facts.invalid_because(samples, used, nodes, declared), *([profiled] if profiled else [])]
    if found.traced:
        invalid.append(facts.TRACED)
    metrics = _with_throughput(
        Metrics(
            window=used,
            max_iteration=samples.max_iteration,
            steps=steps,
            first_iteration=samples.first,
            measured=measured,
            headline=reader.headline,
            invalid=tuple(invalid),
        ),
        found,
        peak_tflops,
    )
    if used is None or metrics.value is None:
        return metrics
    tflops = metrics.model_tflops_per_gpu
    return replace(metrics, statistics=statistics.summarize(samples, used, reader.headline, tflops=tflops))


def _window_of(samples: Samples, steps: int | None, wanted: Window | None, framework: str | None) -> Window | None:
    """The window in the numbers of the log, as far as its lines cover it; None where it is unknown."""
    if not steps:
        return None if wanted is None or wanted.first < 0 else wanted
    first = samples.first
    return covered(
        samples, default_window(steps, first, framework=framework) if wanted is None else wanted.of(steps, first)
    )


def _with_throughput(metrics: Metrics, found: Description, peak_tflops: float | None) -> Metrics:
    """With what follows from the step time, the model and the batch."""
    if found.model is None:
        return metrics
    flops, step_time = found.flops or flops_of(found.model), metrics.step_time
    metrics = replace(metrics, model_flops=flops.total, flops_convention=flops.convention)
    if step_time is None or found.gbs is None:
        return metrics
    derived: dict[str, float] = {}
    if found.seq_length is not None:
        rate = measure.tokens_per_second(found.seq_length, found.gbs, step_time)
        metrics = replace(metrics, days_per_1t_tokens=measure.days_to_train(1e12, rate))
        derived[known.TOKENS_PER_SECOND] = rate
        if found.gpus is not None:
            derived[known.TOKENS_PER_SECOND_PER_GPU] = rate / found.gpus
    if found.gpus is not None:
        tflops = measure.model_tflops_per_gpu(found.gbs, flops.total, step_time, found.gpus)
        derived[known.MODEL_TFLOPS_PER_GPU] = tflops
        if peak_tflops:
            derived[known.MFU] = measure.mfu(tflops, peak_tflops)
    time = metrics.measured[known.STEP_TIME]
    part = time.std / time.mean  # all of them are a constant divided by the step time, so they deviate as it does
    specs = known.TRAINING_BY_NAME
    rates = {name: specs[name].measured(rate, rate * part, time.n) for name, rate in derived.items()}
    return replace(metrics, measured={**metrics.measured, **rates})


def with_times(samples: Samples, found: Description) -> Samples:
    """With the step times that follow from rates of tokens, where the log has only rates and the job is known."""
    if found.gbs is None or found.seq_length is None or found.gpus is None:
        return samples
    tokens = found.gbs * found.seq_length / found.gpus
    lack = [step for step in samples.steps if step.tokens_rate and math.isnan(step.step_time)]
    if not lack or len(lack) != len(samples.steps):
        return samples
    steps = tuple(replace(step, step_time=tokens / step.tokens_rate) for step in lack if step.tokens_rate)
    return replace(samples, steps=steps)


def read_samples(path: Path, spec: ParseSpec) -> tuple[Samples, str]:
    """The samples of a log, and why it cannot be read where it cannot. Raises PatternError."""
    try:
        return read_log(path, spec), ""
    except PatternError:
        raise
    except UnitMismatchError as error:
        return Samples(), f"{error.message}; {error.hint}"
    except LlmbError as error:
        return Samples(), error.message


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
