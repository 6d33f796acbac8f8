# SPDX-License-Identifier: Apache-2.0
"""Makes the result of a run from its record, its scheduler's state and its log, or from a log alone."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from llmb.errors import LlmbError
from llmb.failures import Cause, root_cause
from llmb.logs.formats import MEGATRON_NAME, ParseSpec
from llmb.logs.lines import SlowPatternError, UnitMismatchError
from llmb.logs.reader import read_log
from llmb.logs.samples import Samples
from llmb.results import facts, find, foreign, reason, result as status_of
from llmb.results.description import NOTHING, Description
from llmb.results.launcher_config import config_near, window_of
from llmb.results.log_reader import LogReader
from llmb.results.result import FAILED, RUNNING, SUCCESS, UNKNOWN, Identity, Metrics, Result
from llmb.runs.record import RunRecord
from llmb.runs.state import ACTIVE, CANCELLED, COMPLETED, LOST, NOT_SUBMITTED, TIMEOUT, WAITING, JobState
from llmb.stats import measure
from llmb.stats.measure import Window
from llmb.stats.metrics import (
    MFU,
    MODEL_TFLOPS_PER_GPU,
    STEP_TIME,
    TFLOPS_PER_GPU,
    TOKENS_PER_SECOND,
    TOKENS_PER_SECOND_PER_GPU,
    TRAINING_BY_NAME,
)
from llmb.workload.flops import Flops, flops_of
from llmb.workload.gpus import CPU, GpuTypes, known_types, peak_dtype
from llmb.workload.model import ModelShape
from llmb.workload.spec import Workload

NO_READERS: Mapping[tuple[str, str], LogReader] = {}
HYBRID_NOTE = "TFLOPS_per_GPU is omitted: NeMo 2 counts the layers of a hybrid model wrongly"


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
    samples, unreadable = _read(path, spec) if _exists(path) else (spec.samples or Samples(), "")
    training = job.training
    described = Description(
        gpus=job.scale,
        gbs=training.gbs if training else None,
        seq_length=training.seq_length if training else None,
        model=training.model if training else None,
        flops=flops,
        traced=bool(job.switches.nccl_trace) or None,
        framework=job.framework,
    )
    profiled = "" if job.profile else find.profiled_beside(path)
    if window is None and record.origin is not None and record.origin.window is not None:
        window = Window(*record.origin.window)
    metrics = _metrics(samples, reader, described, job.max_steps, window, peak_tflops, job.nodes, profiled)
    checkpoints = facts.checkpoints_of(
        samples.checkpoints,
        path.parent if record.origin is None else path.resolve().parent,
        save=bool(job.switches.save_checkpoint),
        load=job.switches.load_checkpoint,
        ended=state.is_end,
    )
    status = _status(state, complete=metrics.has_figures, readable=not unreadable)
    unknown_format = status == FAILED and state.state == COMPLETED and reason.is_unknown_format(path, samples)
    unknown_format = unknown_format and root_cause(find.logs_of(record)) is None
    status = UNKNOWN if unknown_format else status
    has_failed = state.is_end and status != SUCCESS and not unreadable and not unknown_format
    cause = root_cause(find.logs_of(record), state) if has_failed else None
    why = None
    if not (unreadable and status == UNKNOWN):
        why = reason.of_run(status, state, samples, metrics, spec, checkpoints, cause)
    configuration = status_of.configuration_of(job)
    return Result(
        identity=Identity(experiment=record.launch.name, path=str(path), run=record.id, configuration=configuration),
        status=status,
        reason="; ".join(filter(None, (unreadable, why))) or None,
        state=state.state,
        cause=cause or (reason.cause_of_end(state) if has_failed else None),
        log=facts.facts_of(samples),
        checkpoints=checkpoints,
        metrics=metrics,
        unreadable=bool(unreadable),
    )


def result_of_log(
    path: Path,
    reader: LogReader,
    window: Window | None = None,
    *,
    workloads: Mapping[str, Workload] | None = None,
    readers: Mapping[tuple[str, str], LogReader] = NO_READERS,
    given: Description = NOTHING,
    flops: Callable[[str, ModelShape], Flops | None] = lambda _key, _shape: None,
    types: GpuTypes | None = None,
) -> Result:
    """The result of a log without a record, with everything that follows from what the log is of.

    ``workloads``: what it may be of, by key; None: its name and lines are not matched with any. ``readers``: of
    workloads and sizes whose logs are read in another way than by ``reader``. ``given``: what the user says of it,
    which overrides the log; a log never names its GPU type. ``flops``: of a sample of a workload's model, None for
    llmb's formulas; ``types``: every known GPU type, None for llmb's own. A log that cannot be read is Unknown, with
    the reason: it may be one of thousands.
    """
    if readers and workloads is not None:
        named = foreign.describe_log(path, Samples(), workloads, given)
        workload = workloads.get(named.workload or "")
        if workload is not None:
            reader = readers.get((workload.key, named.size or workload.default_size), reader)
    spec = reader.spec
    kinds = known_types() if types is None else types
    samples, unreadable = _read(path, spec)
    identity = Identity(experiment=experiment_of(path), path=str(path))
    if unreadable:
        return Result(identity=identity, status=UNKNOWN, reason=unreadable, unreadable=True)
    found = given if workloads is None else foreign.describe_log(path, samples, workloads, given)
    if found.workload is not None and found.model is not None:
        found = replace(found, flops=flops(found.workload, found.model))
    hybrid = found.model is not None and found.model.pattern is not None and samples.framework != MEGATRON_NAME
    if hybrid and spec.tflops_valid:
        spec = replace(spec, tflops_valid=False, tflops_note=HYBRID_NOTE)
    samples = _with_times(samples, found)
    last = samples.max_iteration if samples.last is None else samples.last
    steps = None if last is None else last + 1
    if window is None and (beside := config_near(path)) is not None:
        measured = window_of(beside.release, steps or 0)
        window = None if measured is None else Window(*measured)
    configuration = found.configuration()
    known = found.profiled and configuration is not None
    profiled = "" if known else facts.PROFILED if found.profiled else find.profiled_beside(path)
    read = replace(reader, spec=spec)
    metrics = _metrics(samples, read, found, steps, window, _peak(found, kinds), _nodes(found, kinds), profiled)
    checkpoints = facts.checkpoints_of(samples.checkpoints, path.parent)
    status, cause = _status_of_log(path, samples, metrics)
    return Result(
        identity=replace(
            identity,
            configuration=configuration,
            missing=found.missing(),
            overridden=()
            if workloads is None
            else foreign.overridden(given, foreign.describe_log(path, samples, workloads)),
        ),
        status=status,
        reason=reason.of_log(status, samples, metrics, spec, checkpoints, cause),
        cause=cause,
        log=facts.facts_of(samples),
        checkpoints=checkpoints,
        metrics=metrics,
    )


def experiment_of(path: Path) -> str:
    """The experiment's name in a log's: without ``log-``, the account before it and the attempt after the job's id."""
    stem = path.name.removesuffix(".gz").removesuffix(".out").removeprefix("log-")
    name = re.sub(rf"(_\d+){find.ATTEMPT}$", r"\1", stem)
    return re.sub(r"^[^.]*\.(?=pretrain)", "", name)


def _metrics(
    samples: Samples,
    reader: LogReader,
    found: Description,
    steps: int | None,
    window: Window | None,
    peak_tflops: float | None,
    nodes: int | None,
    profiled: str,
) -> Metrics:
    """What the steps measured over ``window`` (the default one where None); ``profiled``: why it is known to be."""
    if steps:  # in the numbers of the log, as far as its lines cover it
        first = samples.first
        wanted = (
            measure.default_window(steps, first, framework=found.framework)
            if window is None
            else window.of(steps, first)
        )
        used: Window | None = measure.covered(samples, wanted)
    else:
        used = None if window is None or window.first < 0 else window
    measured = measure.measure(samples, used, reader.metrics) if used else {}
    if not reader.spec.tflops_valid:
        measured.pop(TFLOPS_PER_GPU, None)
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
    return replace(metrics, statistics=measure.summarize(samples, used, reader.headline, tflops=tflops))


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
        derived[TOKENS_PER_SECOND] = rate
        if found.gpus is not None:
            derived[TOKENS_PER_SECOND_PER_GPU] = rate / found.gpus
    if found.gpus is not None:
        tflops = measure.model_tflops_per_gpu(found.gbs, flops.total, step_time, found.gpus)
        derived[MODEL_TFLOPS_PER_GPU] = tflops
        if peak_tflops:
            derived[MFU] = measure.mfu(tflops, peak_tflops)
    time = metrics.measured[STEP_TIME]
    part = time.std / time.mean  # all of them are a constant divided by the step time, so they deviate as it does
    rates = {name: TRAINING_BY_NAME[name].measured(rate, rate * part, time.n) for name, rate in derived.items()}
    return replace(metrics, measured={**metrics.measured, **rates})


def _with_times(samples: Samples, found: Description) -> Samples:
    """With the step times that follow from rates of tokens, where the log has only rates and the job is known."""
    if found.gbs is None or found.seq_length is None or found.gpus is None:
        return samples
    tokens = found.gbs * found.seq_length / found.gpus
    lack = [step for step in samples.steps if step.tokens_rate and math.isnan(step.step_time)]
    if not lack or len(lack) != len(samples.steps):
        return samples
    steps = tuple(replace(step, step_time=tokens / step.tokens_rate) for step in lack if step.tokens_rate)
    return replace(samples, steps=steps)


def _status(state: JobState, *, complete: bool, readable: bool) -> str:
    if state.state in WAITING or state.state == NOT_SUBMITTED:
        return status_of.PENDING
    if state.state in ACTIVE:
        return RUNNING
    if state.state == CANCELLED:
        return status_of.CANCELLED
    if not state.is_end or state.state == LOST or not readable:
        return UNKNOWN
    return SUCCESS if complete and state.state in (COMPLETED, TIMEOUT) else FAILED


def _status_of_log(path: Path, samples: Samples, metrics: Metrics) -> tuple[str, Cause | None]:
    """The status of a log without a record, and the cause where it failed.

    A log that omits how many steps were planned has succeeded where nothing in it says otherwise.
    """
    reached = metrics.has_figures and samples.is_complete
    if reached and samples.last is not None:
        return SUCCESS, None
    cause = root_cause(find.logs_beside(path))
    if cause is None and reached:
        return SUCCESS, None
    if cause is None and reason.is_unknown_format(path, samples):
        return UNKNOWN, None
    return FAILED, cause


def _read(path: Path, spec: ParseSpec) -> tuple[Samples, str]:
    """The samples of a log, and why it cannot be read where it cannot. Raises SlowPatternError."""
    try:
        return read_log(path, spec), ""
    except SlowPatternError:
        raise
    except UnitMismatchError as error:
        return Samples(), f"{error.message}; {error.hint}"
    except LlmbError as error:
        return Samples(), error.message


def _exists(path: Path) -> bool:
    """Whether the log exists; true where this user may not see that, so that reading it names the reason."""
    try:
        return path.exists()
    except OSError:
        return True


def _nodes(found: Description, types: GpuTypes) -> int | None:
    """The nodes that a job had at least: by its GPU type, else by the type with the most GPUs in a node."""
    if found.gpus is None or found.gpu_type == CPU:
        return None
    own = types.get(found.gpu_type or "")
    return math.ceil(found.gpus / (own.gpus_per_node if own else max(known.gpus_per_node for known in types.values())))


def _peak(found: Description, types: GpuTypes) -> float | None:
    known = types.get(found.gpu_type or "")
    return known.peak_tflops.get(peak_dtype(found.dtype or "")) if known else None
