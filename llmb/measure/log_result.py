# SPDX-License-Identifier: Apache-2.0
"""Make the result of a log without a record, and everything that follows from its settings."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from llmb.contract.failures import Failure
from llmb.contract.flops import Flops
from llmb.contract.formats import MEGATRONS, NEMOS, ParseSpec
from llmb.contract.gpus import CPU, GpuTypes, known_types, peak_at
from llmb.contract.log_settings import LogSettings
from llmb.contract.model import ModelShape
from llmb.contract.samples import Samples
from llmb.contract.settings import NOTHING, Settings
from llmb.contract.spec import NEMO, Workload
from llmb.contract.window import Window, batches_in
from llmb.measure import facts, find_logs, mlperf, nccl_tests, result_notes, suites
from llmb.measure.checkpoints import checkpoints_of
from llmb.measure.describe_log import (
    complete,
    describe,
    missing,
    overridden_by,
    settings_named,
    trained_by,
)
from llmb.measure.failure_causes import Cause
from llmb.measure.log_lines import PatternError
from llmb.measure.reader import LogReader
from llmb.measure.result import FAILED, SUCCESS, UNKNOWN, Identity, Metrics, Override, Result
from llmb.measure.root_cause import cause_behind, root_cause
from llmb.measure.run_result import (
    metrics_of,
    read_samples,
    window_of,
    with_gaps,
    with_program_lines,
    with_times,
)
from llmb.measure.telemetry import joined

_NO_READERS: Mapping[tuple[str, str], LogReader] = {}
_HYBRID_NOTE = "TFLOPS_per_GPU is omitted: NeMo 2 counts the layers of a hybrid model wrongly"


def result_of_log(
    path: Path,
    reader: LogReader,
    window: Window | None = None,
    *,
    workloads: Mapping[str, Workload] | None = None,
    readers: Mapping[tuple[str, str], LogReader] = _NO_READERS,
    overrides: Settings = NOTHING,
    flops: Callable[[str, ModelShape], Flops | None] = lambda _key, _shape: None,
    types: GpuTypes | None = None,
    beside: Mapping[Path, LogSettings] = MappingProxyType({}),
    windows: Mapping[str, tuple[float, float]] = MappingProxyType({}),
) -> Result:
    """Return the result of a log without a record, with everything that follows from its settings.

    ``workloads`` are the candidates by key, None to match its name and lines with none. ``readers``
    are for workloads and sizes whose logs ``reader`` cannot read. ``overrides`` are the user's
    settings: a log never names its GPU type. ``flops`` returns the operations of a sample, None for
    llmb's formulas. ``types`` are all known GPU types, None for llmb's own. A log that cannot be
    read is Unknown, with the reason: it may be one of thousands. ``beside``: by log, what plugins
    found in files beside it. ``windows``: of the frameworks that have their own.
    """
    settings_found = beside.get(path)
    named = NOTHING if workloads is None else settings_named(path, workloads)
    if readers and workloads is not None:
        known = describe(named, Samples(), workloads, overrides, settings_found)
        if known.workload in workloads:
            size = known.model_size or workloads[known.workload].default_size
            reader = readers.get((known.workload, size), reader)
    try:
        samples, unreadable = _read(path, reader.spec)
    except PatternError as error:  # this log alone
        samples, unreadable = Samples(), error.message
    identity = Identity(experiment=experiment_of(path), path=str(path))
    if unreadable:
        return Result(identity=identity, status=UNKNOWN, reason=unreadable, unreadable=True)
    last = samples.max_iteration if samples.last is None else samples.last
    steps = None if last is None else last + 1
    settings, overridden = overrides, tuple[Override, ...]()
    if workloads is not None:
        settings = describe(named, samples, workloads, overrides, settings_found)
        if len(samples.batches) > 1:
            used = window or _window_beside(settings_found, steps)
            used = window_of(samples, steps, used, windows.get(settings.framework))
            batches = () if used is None else batches_in(samples, used)
            samples = replace(samples, gbs=batches[-1]) if batches else samples
            settings = describe(named, samples, workloads, overrides, settings_found)
        logged = describe(named, samples, workloads, beside=settings_found)
        overridden = overridden_by(overrides, logged)
    workload = (workloads or {}).get(settings.workload)
    trained = trained_by(settings, workload)
    settings = replace(
        settings,
        num_layers=trained.num_layers or settings.num_layers,
        gbs=overrides.gbs or trained.gbs,
        seq_length=overrides.seq_length or trained.seq_length,
        changes=trained.changes,
    )
    configuration, samples = complete(settings, workload), with_times(samples, settings)
    reader = _without_hybrid_tflops(reader, samples, trained.model)
    types = known_types() if types is None else types
    peak = peak_at(types.get(settings.gpu_type or ""), settings.dtype)
    is_profiled = settings.profile and configuration is None
    metrics = metrics_of(
        samples,
        reader,
        settings,
        trained.model,
        None if trained.model is None else flops(settings.workload, trained.model),
        steps=steps,
        window=window or _window_beside(settings_found, steps),
        window_parts=windows.get(settings.framework),
        peak_tflops=None if trained.other_dtype else peak,
        nodes=_nodes(settings, types),
        profiled=facts.PROFILED if is_profiled else find_logs.profiled_beside(path, settings_found),
    )
    metrics = with_program_lines(metrics, samples, reader)
    checkpoints = checkpoints_of(samples.checkpoints, path.parent)
    status, cause = _status_of_log(path, samples, metrics, reader.failures)
    metrics = with_gaps(metrics, samples, status)
    reason = result_notes.of_log(path, status, samples, metrics, reader.spec, checkpoints, cause)
    if status == SUCCESS and samples.offsets:  # its steps are measured, whatever follows them
        later = cause_behind(path, samples.offsets[-1][1], reader.failures)
        late = f"after its last step: {later}" if later is not None else None
        reason = "; ".join(filter(None, (late, reason))) or None
    return Result(
        identity=replace(
            identity,
            configuration=configuration,
            missing=missing(settings, workload),
            overridden=overridden,
            framework=_framework_of(settings, workload, samples),
        ),
        status=status,
        reason=reason,
        cause=cause,
        log=facts.facts_of(samples),
        checkpoints=checkpoints,
        metrics=metrics,
        nodes=facts.node_facts(joined(samples.environment.described)),
    )


def _framework_of(settings: Settings, workload: Workload | None, samples: Samples) -> str | None:
    """Return what trained the model, None if it is unknown or there is no model."""
    if workload is not None and not workload.is_training:
        return None
    if settings.framework or workload is None or workload.framework == NEMO:
        return settings.framework or (NEMO if samples.framework in NEMOS else None)
    return workload.framework


def _read(path: Path, spec: ParseSpec) -> tuple[Samples, str]:
    """Return the samples of a log and, if it cannot be read, the reason. Raises PatternError.

    Programs that log by Python's logging print their steps to the standard error.
    """
    samples, unreadable = read_samples(path, spec)
    if unreadable or _has_any(samples):
        return samples, unreadable
    beside = suites.stderr_beside(path)
    samples_beside = Samples() if beside is None else read_samples(beside, spec)[0]
    return (samples_beside if _has_any(samples_beside) else samples), unreadable


def _has_any(samples: Samples) -> bool:
    """Return True if a log measured anything."""
    parts = (samples.mlperf, samples.nccl_table, samples.figures)
    return bool(samples.steps) or any(part is not None for part in parts)


def _without_hybrid_tflops(
    reader: LogReader, samples: Samples, model: ModelShape | None
) -> LogReader:
    """Return the reader, which takes no TFLOPS from NeMo 2 for a hybrid model."""
    is_hybrid = model is not None and model.pattern is not None
    if not is_hybrid or samples.framework in MEGATRONS or not reader.spec.tflops_valid:
        return reader
    return replace(reader, spec=replace(reader.spec, tflops_valid=False, tflops_note=_HYBRID_NOTE))


def _window_beside(beside: LogSettings | None, steps: int | None) -> Window | None:
    """Return the window in a file beside the log if a run of ``steps`` has it, else None."""
    measured = None if beside is None else beside.window_of(steps)
    return None if measured is None else Window(*measured)


def experiment_of(path: Path) -> str:
    """Return the experiment's name in a log's, without ``log-``, account and attempt.

    A run of a suite of benchmarks has the suite's name for it.
    """
    if (name := suites.name_of(path)) is not None:
        return name
    stem = path.name.removesuffix(".gz").removesuffix(".out").removeprefix("log-")
    name = re.sub(f"{find_logs.REQUEUED}$", r"\1", stem)
    return re.sub(r"^[^.]*\.(?=pretrain)", "", name)


def _status_of_log(
    path: Path, samples: Samples, metrics: Metrics, more: tuple[Failure, ...]
) -> tuple[str, Cause | None]:
    """Return the status of a log without a record and, if it failed, the cause.

    ``more`` are causes of plugins.

    A log that omits the number of planned steps has succeeded if nothing in it contradicts.
    """
    beside = find_logs.logs_beside(path)
    if samples.failed:
        return FAILED, root_cause(beside, more=more) if samples.figures is not None else None
    if samples.mlperf is not None and samples.mlperf.status:
        return (SUCCESS if samples.mlperf.status == mlperf.SUCCESSFUL else FAILED), None
    if metrics.headline == nccl_tests.BUSBW and samples.nccl_table is not None:
        if samples.nccl_table.ended:
            return SUCCESS, None
        return FAILED, root_cause(beside, more=more)
    if samples.figures is not None and not samples.steps:
        return SUCCESS, None
    reached = metrics.has_figures and samples.is_complete
    if reached and samples.last is not None:
        return SUCCESS, None
    cause = root_cause(beside, more=more)
    if cause is None and reached:
        return SUCCESS, None
    if cause is None and result_notes.is_unknown_format(path, samples):
        return UNKNOWN, None
    if cause is None and not samples.steps and result_notes.has_own_steps(path):
        return UNKNOWN, None
    return FAILED, cause


def _nodes(settings: Settings, types: GpuTypes) -> int | None:
    """Return the nodes that a job had at least, by its GPU type or by the largest node."""
    if not settings.scale or settings.gpu_type == CPU:
        return None
    gpu_type = types.get(settings.gpu_type or "")
    return math.ceil(
        settings.scale
        / (
            gpu_type.gpus_per_node
            if gpu_type
            else max(any_type.gpus_per_node for any_type in types.values())
        )
    )
