# SPDX-License-Identifier: Apache-2.0
"""Make the result of a run from its record, its scheduler's state and its log."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from llmb.contract import metrics as known, state as states, window as measure
from llmb.contract.flops import Flops, causal_flops, flops_of
from llmb.contract.formats import MEGATRONS, ParseSpec
from llmb.contract.metrics import Measured, MetricSpec
from llmb.contract.model import ModelShape
from llmb.contract.record import RunRecord
from llmb.contract.samples import Node, Samples
from llmb.contract.settings import Settings
from llmb.contract.state import JobState
from llmb.contract.window import Window, covered, default_window
from llmb.core.scan import is_cut_off
from llmb.errors import LlmbError
from llmb.measure import (
    facts,
    find_logs,
    mlperf,
    nccl_tests,
    result_notes,
    statistics,
    superbench,
    telemetry,
)
from llmb.measure.checkpoints import checkpoints_of
from llmb.measure.full_disk import full_disk
from llmb.measure.log_lines import PatternError, UnitMismatchError
from llmb.measure.log_reader import read_log
from llmb.measure.losses import loss_curve
from llmb.measure.reader import LogReader
from llmb.measure.result import (
    CANCELLED,
    FAILED,
    PENDING,
    RUNNING,
    SUCCESS,
    UNKNOWN,
    Identity,
    Metrics,
    Result,
)
from llmb.measure.root_cause import root_cause
from llmb.measure.sustained import sustained_of
from llmb.run import sessions


def metrics_of(
    samples: Samples,
    reader: LogReader,
    settings: Settings,
    model: ModelShape | None,
    own_flops: Flops | None,
    *,
    steps: int | None,
    window: Window | None,
    window_parts: tuple[float, float] | None,
    peak_tflops: float | None,
    nodes: int | None,
    profiled: str,
) -> Metrics:
    """Return the metrics of the steps in ``window`` (None: the default one, of ``window_parts``).

    ``model`` was trained, None if unknown or without one. ``own_flops`` are of one sample by its
    plugin's formula, None for llmb's.
    ``steps`` are planned, None if unknown. ``peak_tflops`` is the peak of one GPU at the dtype.
    ``nodes`` is the least number that the job had. ``profiled`` is why it is known to be profiled,
    or empty.
    """
    if reader.spec.reads_whole_log:  # its results are no iterations, so none is of a warm-up
        steps = None if samples.last is None else samples.last + 1
        window = window or (None if steps is None else Window(0, steps - 1))
    used = window_of(samples, steps, window, window_parts)
    specs = (*reader.metrics, *_energy_specs(samples, reader))
    measured = measure.measure(samples, used, specs) if used else {}
    if not reader.spec.tflops_valid:
        measured.pop(known.TFLOPS_PER_GPU, None)
    declared = [spec.name for spec in reader.metrics]
    invalid = [
        *facts.invalid_because(samples, used, nodes, declared),
        *([profiled] if profiled else []),
    ]
    if settings.nccl_trace:
        invalid.append(facts.TRACED)
    if settings.stragglers:
        invalid.append(facts.DETECTED)
    batch_change = facts.batch_change(samples, used, settings.gbs)
    if batch_change:
        invalid.append(batch_change)
        settings = replace(settings, gbs=None)  # so that no rates are computed
    metrics = _with_throughput(
        Metrics(
            window=used,
            max_iteration=samples.max_iteration,
            steps=steps,
            first_iteration=samples.first,
            measured=measured,
            headline=reader.headline,
            invalid=tuple(invalid),
            losses=loss_curve(samples),
        ),
        settings,
        own_flops or (None if model is None else flops_of(model)),
        peak_tflops,
    )
    if used is None or metrics.value is None:
        return metrics
    return replace(
        metrics,
        statistics=statistics.summarize(
            samples,
            used,
            reader.headline,
            tflops=metrics.model_tflops_per_gpu,
            causal=None if own_flops is not None else _causal_part(samples, model),
        ),
    )


def _energy_specs(samples: Samples, reader: LogReader) -> list[MetricSpec]:
    """Return the metrics of energy that the log has and the workload does not declare."""
    logged = samples.steps[-1].values if samples.steps else {}
    declared = {spec.name for spec in reader.metrics}
    return [spec for spec in known.ENERGY if spec.name in logged and spec.name not in declared]


def _causal_part(samples: Samples, model: ModelShape | None) -> float | None:
    """Return the part of our formula with only the causal half of the attention.

    None if the program counts all of it.
    """
    if model is None or samples.framework not in MEGATRONS:
        return None
    return causal_flops(model) / flops_of(model).total


def window_of(
    samples: Samples,
    steps: int | None,
    requested: Window | None,
    parts: tuple[float, float] | None,
) -> Window | None:
    """Return the window in the numbers of the log, as far as its lines cover it, or None."""
    if not steps:
        return None if requested is None or requested.first < 0 else requested
    first = samples.first
    return covered(
        samples,
        default_window(steps, first, parts=parts)
        if requested is None
        else requested.of(steps, first),
    )


def _with_throughput(
    metrics: Metrics, settings: Settings, flops: Flops | None, peak_tflops: float | None
) -> Metrics:
    """Add everything that follows from the step time, the model and the batch."""
    step_time = metrics.step_time
    if flops is not None:
        metrics = replace(metrics, model_flops=flops.total, flops_convention=flops.convention)
    elif not settings.changes:
        return metrics
    if step_time is None or settings.gbs is None:
        return metrics
    derived: dict[str, float] = {}
    if settings.seq_length is not None:
        rate = measure.tokens_per_second(settings.seq_length, settings.gbs, step_time)
        metrics = replace(metrics, days_per_1t_tokens=measure.days_to_train(1e12, rate))
        derived[known.TOKENS_PER_SECOND] = rate
        if settings.scale:
            derived[known.TOKENS_PER_SECOND_PER_GPU] = rate / settings.scale
    if settings.scale and flops is not None:
        tflops = measure.model_tflops_per_gpu(settings.gbs, flops.total, step_time, settings.scale)
        derived[known.MODEL_TFLOPS_PER_GPU] = tflops
        if peak_tflops:
            derived[known.MFU] = measure.mfu(tflops, peak_tflops)
    time = metrics.measured[known.STEP_TIME]
    # all of them are a constant divided by the step time, so they deviate as it does
    specs = known.TRAINING_BY_NAME
    rates = {
        name: specs[name].measured(rate, time.deviation_of(rate), time.n)
        for name, rate in derived.items()
    }
    return replace(metrics, measured={**metrics.measured, **rates, **_per_joule(metrics, settings)})


def _per_joule(metrics: Metrics, settings: Settings) -> dict[str, Measured]:
    """Return the tokens per joule of the GPUs, if the log has their energy."""
    joules, name = metrics.measured.get(known.JOULES_PER_STEP), known.TOKENS_PER_JOULE
    length, batch, gpus = settings.seq_length, settings.gbs, settings.scale
    if joules is None or joules.mean <= 0 or name in metrics.measured:
        return {}
    if not length or not batch or not gpus:
        return {}
    rate = length * batch / joules.mean / gpus
    spec = known.ENERGY_BY_NAME[name]
    return {name: spec.measured(rate, joules.deviation_of(rate), joules.n)}


def with_power(metrics: Metrics, nodes: Sequence[Node], gpus: int) -> Metrics:
    """Add what follows from the telemetry of a job's ``nodes``, unless the program logs it."""
    power = telemetry.power_metrics(nodes, gpus, metrics.mean(known.TOKENS_PER_SECOND))
    return replace(metrics, measured={**power, **metrics.measured}) if power else metrics


def with_cost(result: Result, price_per_gpu_hour: float | None) -> Result:
    """Add the cost of a million tokens at the price of a GPU for an hour, in its currency.

    The run's own time per token decides: nothing is added for starts, restarts and idle GPUs.
    """
    metrics, name = result.metrics, known.COST_PER_MILLION_TOKENS
    rate = metrics.measured.get(known.TOKENS_PER_SECOND_PER_GPU)
    if price_per_gpu_hour is None or rate is None or rate.mean <= 0 or name in metrics.measured:
        return result
    cost = price_per_gpu_hour * 1e6 / (rate.mean * 3600)
    value = known.ENERGY_BY_NAME[name].measured(cost, rate.deviation_of(cost), rate.n)
    return replace(result, metrics=replace(metrics, measured={**metrics.measured, name: value}))


def with_times(samples: Samples, settings: Settings) -> Samples:
    """Add step times that follow from rates of tokens, if the log has only rates.

    It needs the job's batch, sequence length and GPUs.
    """
    if not settings.gbs or not settings.seq_length or not settings.scale:
        return samples
    tokens = settings.gbs * settings.seq_length / settings.scale
    lack = [step for step in samples.steps if step.tokens_rate and math.isnan(step.step_time)]
    if not lack or len(lack) != len(samples.steps):
        return samples
    steps = tuple(
        replace(step, step_time=tokens / step.tokens_rate) for step in lack if step.tokens_rate
    )
    return replace(samples, steps=steps)


def read_samples(path: Path, spec: ParseSpec) -> tuple[Samples, str]:
    """Return the samples of a log and, if it cannot be read, the reason. Raises PatternError."""
    try:
        samples = read_log(path, spec)
        if not samples.is_complete and is_cut_off(path):
            return samples, f"{path} is cut off or damaged: gzip -t fails; compress it again"
        return samples, ""
    except PatternError:
        raise
    except UnitMismatchError as error:
        return Samples(), f"{error.message}; {error.hint}"
    except LlmbError as error:
        return Samples(), error.message
    except OSError as error:
        return Samples(), f"{path} cannot be read: {error.strerror or error}"


def result_of_run(
    record: RunRecord,
    state: JobState,
    reader: LogReader,
    peak_tflops: float | None,
    window: Window | None = None,
    *,
    window_parts: tuple[float, float] | None = None,
    flops: Flops | None = None,
    log: Path | None = None,
) -> Result:
    """Return the result of a recorded run.

    ``log`` is ``log_of(record)`` if that is known. ``window_parts`` are those of the framework.

    ``peak_tflops`` is the peak of one GPU at the job's dtype, None if unknown. ``flops`` are of one
    sample by the plugin's own formula, None for llmb's. If a log exists and cannot be read, the
    status is Unknown and the reason says why.
    """
    job, path, spec = record.job, log or find_logs.log_of(record), reader.spec
    samples, unreadable = (
        read_samples(path, spec) if _exists(path) else (spec.samples or Samples(), "")
    )
    default = None
    if record.origin is not None and record.origin.window is not None:
        default = Window(*record.origin.window)
    settings, trained = record.settings, job.with_dotted
    metrics = metrics_of(
        samples,
        reader,
        settings,
        trained.model,
        flops,
        steps=job.max_steps,
        window=window or default,
        window_parts=window_parts,
        peak_tflops=None if trained.other_dtype else peak_tflops,
        nodes=job.nodes,
        profiled="" if job.profile else find_logs.profiled_beside(path),
    )
    metrics = with_program_lines(metrics, samples, reader)
    checkpoints = checkpoints_of(
        samples.checkpoints,
        path.parent if record.origin is None else path.resolve().parent,
        save=bool(job.switches.save_checkpoint),
        load=job.switches.load_checkpoint,
        ended=state.is_end,
    )
    series = [*telemetry.read_folder(path.parent)]
    nodes = telemetry.nodes_of(samples, series, metrics.window)
    metrics = with_power(metrics, nodes, job.scale)
    if job.training is not None:
        used = window_of(samples, job.max_steps, default, window_parts)
        in_window = nodes if used == metrics.window else telemetry.nodes_of(samples, series, used)
        metrics = replace(metrics, sustained=sustained_of(samples, used, series, in_window))
    complete = metrics.has_figures and not samples.failed and has_ended(samples, metrics)
    status = _status(state, complete=complete, readable=not unreadable)
    may_have_failed = status in (FAILED, CANCELLED) or state.state == states.LOST
    logs = find_logs.logs_of(record, path) if may_have_failed else []
    if (
        status == FAILED
        and state.state == states.COMPLETED
        and result_notes.is_unknown_format(path, samples)
    ):
        status = FAILED if root_cause(logs, more=reader.failures) is not None else UNKNOWN
    has_failed = not unreadable and (status in (FAILED, CANCELLED) or state.state == states.LOST)
    cause = root_cause(logs, state, reader.failures) if has_failed else None
    end_cause = result_notes.cause_of_end(state) if has_failed else None
    if has_failed and cause is None and end_cause is None:
        cause = full_disk(record)
    metrics = with_gaps(metrics, samples, status)
    run_reason = None
    if not (unreadable and status == UNKNOWN):
        run_reason = result_notes.of_run(status, state, samples, metrics, spec, checkpoints, cause)
    return Result(
        identity=Identity(
            experiment=record.launch.name,
            path=str(path),
            run=record.id,
            configuration=settings,
            framework=job.framework if job.training is not None else None,
            session=sessions.session_of(record).id,
            pair=record.pair,
        ),
        status=status,
        reason="; ".join(filter(None, (unreadable, run_reason))) or None,
        state=state.state,
        cause=cause or end_cause,
        log=facts.facts_of(samples, nodes),
        checkpoints=checkpoints,
        metrics=metrics,
        nodes=facts.node_facts(nodes),
        unreadable=bool(unreadable),
    )


def with_gaps(metrics: Metrics, samples: Samples, status: str) -> Metrics:
    """Return the metrics, invalid if a run reached its last step without all lines of its window.

    A failure that its log states is the stronger reason, and needs no other.
    """
    if metrics.max_iteration is None or metrics.steps is None or metrics.value is not None:
        return metrics
    if status != FAILED or samples.failed or metrics.max_iteration < metrics.steps - 1:
        return metrics
    return replace(metrics, invalid=(*metrics.invalid, facts.INCOMPLETE))


def with_program_lines(metrics: Metrics, samples: Samples, reader: LogReader) -> Metrics:
    """Add what MLPerf's lines, tables of nccl-tests and results of superbench measured."""
    metrics = nccl_tests.with_table(mlperf.with_mlperf(metrics, samples), samples, reader.metrics)
    return superbench.with_figures(metrics, samples)


def has_ended(samples: Samples, metrics: Metrics) -> bool:
    """Return True unless the program's own last line is missing, or says that it failed."""
    if samples.mlperf is not None and samples.mlperf.status:
        return samples.mlperf.status == mlperf.SUCCESSFUL
    is_table = metrics.headline == nccl_tests.BUSBW and not samples.steps
    return not is_table or samples.nccl_table is None or samples.nccl_table.ended


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
    """Return True if the log exists, or if this user may not see it: reading it says so."""
    try:
        return path.exists()
    except OSError:
        return True
