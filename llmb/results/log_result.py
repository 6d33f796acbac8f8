# SPDX-License-Identifier: Apache-2.0
"""Makes the result of a log without a record, and everything that follows from its configuration."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from llmb.failures import Cause, root_cause
from llmb.logs.formats import MEGATRONS, NEMOS
from llmb.logs.lines import PatternError
from llmb.logs.samples import Samples
from llmb.results import facts, find, launcher_config, reason
from llmb.results.checkpoints import checkpoints_of
from llmb.results.describe_log import describe_log, overridden_by
from llmb.results.description import NOTHING, Description
from llmb.results.result import FAILED, SUCCESS, UNKNOWN, Identity, Metrics, Override, Result
from llmb.results.run_result import LogReader, metrics_of, read_samples, with_times
from llmb.stats.measure import Window
from llmb.workload.bridge import NEMO
from llmb.workload.flops import Flops
from llmb.workload.gpus import CPU, GpuTypes, known_types, peak_dtype
from llmb.workload.model import ModelShape
from llmb.workload.spec import Workload

_NO_READERS: Mapping[tuple[str, str], LogReader] = {}
_HYBRID_NOTE = "TFLOPS_per_GPU is omitted: NeMo 2 counts the layers of a hybrid model wrongly"


def result_of_log(
    path: Path,
    reader: LogReader,
    window: Window | None = None,
    *,
    workloads: Mapping[str, Workload] | None = None,
    readers: Mapping[tuple[str, str], LogReader] = _NO_READERS,
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
        named = describe_log(path, Samples(), workloads, given)
        workload = workloads.get(named.workload or "")
        if workload is not None:
            reader = readers.get((workload.key, named.size or workload.default_size), reader)
    try:
        samples, unreadable = read_samples(path, reader.spec)
    except PatternError as error:  # this log alone
        samples, unreadable = Samples(), error.message
    identity = Identity(experiment=experiment_of(path), path=str(path))
    if unreadable:
        return Result(identity=identity, status=UNKNOWN, reason=unreadable, unreadable=True)
    found, overridden = given, tuple[Override, ...]()
    if workloads is not None:
        found = describe_log(path, samples, workloads, given)
        overridden = overridden_by(given, describe_log(path, samples, workloads))
    if found.workload is not None and found.model is not None:
        found = replace(found, flops=flops(found.workload, found.model))
    configuration, samples = found.configuration(), with_times(samples, found)
    reader = _without_hybrid_tflops(reader, samples, found)
    metrics = _metrics(path, samples, reader, found, window, known_types() if types is None else types)
    checkpoints = checkpoints_of(samples.checkpoints, path.parent)
    status, cause = _status_of_log(path, samples, metrics)
    return Result(
        identity=replace(
            identity,
            configuration=configuration,
            missing=found.missing(),
            overridden=overridden,
            framework=None if found.untrained else found.framework or (NEMO if samples.framework in NEMOS else None),
        ),
        status=status,
        reason=reason.of_log(path, status, samples, metrics, reader.spec, checkpoints, cause),
        cause=cause,
        log=facts.facts_of(samples),
        checkpoints=checkpoints,
        metrics=metrics,
    )


def _without_hybrid_tflops(reader: LogReader, samples: Samples, found: Description) -> LogReader:
    """The reader, which takes no TFLOPS from NeMo 2 for a hybrid model."""
    is_hybrid = found.model is not None and found.model.pattern is not None
    if not is_hybrid or samples.framework in MEGATRONS or not reader.spec.tflops_valid:
        return reader
    return replace(reader, spec=replace(reader.spec, tflops_valid=False, tflops_note=_HYBRID_NOTE))


def _metrics(
    path: Path, samples: Samples, reader: LogReader, found: Description, window: Window | None, types: GpuTypes
) -> Metrics:
    """The metrics; the default window is that of the older launcher's release, where its files are beside the log."""
    last = samples.max_iteration if samples.last is None else samples.last
    steps = None if last is None else last + 1
    if window is None and (beside := launcher_config.config_near(path)) is not None:
        measured = launcher_config.window_of(beside.release, steps or 0)
        window = None if measured is None else Window(*measured)
    is_in_configuration = found.profiled and found.configuration() is not None
    profiled = facts.PROFILED if found.profiled else find.profiled_beside(path)
    return metrics_of(
        samples,
        reader,
        found,
        steps=steps,
        window=window,
        peak_tflops=_peak(found, types),
        nodes=_nodes(found, types),
        profiled="" if is_in_configuration else profiled,
    )


def experiment_of(path: Path) -> str:
    """The experiment's name in a log's: without ``log-``, the account before it and the attempt after the job's id."""
    stem = path.name.removesuffix(".gz").removesuffix(".out").removeprefix("log-")
    name = re.sub(f"{find.REQUEUED}$", r"\1", stem)
    return re.sub(r"^[^.]*\.(?=pretrain)", "", name)


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
    if cause is None and not samples.steps and reason.has_own_steps(path):
        return UNKNOWN, None
    return FAILED, cause


def _nodes(found: Description, types: GpuTypes) -> int | None:
    """The nodes that a job had at least: by its GPU type, else by the type with the most GPUs in a node."""
    if found.gpus is None or found.gpu_type == CPU:
        return None
    own = types.get(found.gpu_type or "")
    return math.ceil(found.gpus / (own.gpus_per_node if own else max(known.gpus_per_node for known in types.values())))


def _peak(found: Description, types: GpuTypes) -> float | None:
    known = types.get(found.gpu_type or "")
    return known.peak_tflops.get(peak_dtype(found.dtype or "")) if known else None
