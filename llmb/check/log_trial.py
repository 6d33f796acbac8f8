# SPDX-License-Identifier: Apache-2.0
"""Reads a log that belongs to no run, as `parse -w` and `plugins check --log` do."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb import api
from llmb.check import workload_trial
from llmb.contract.metrics import STEP_TIME, TRAINING_BY_NAME
from llmb.contract.record import RunRecord
from llmb.contract.settings import Settings
from llmb.contract.window import Window
from llmb.core import yamlfile
from llmb.core.names import suggest
from llmb.core.process import ProcessId
from llmb.core.scan import open_log, read_blocks
from llmb.core.values import dataclass
from llmb.errors import Fault, KeyFaultError, LlmbError, PluginError, author_fault
from llmb.measure.log_reader import read_log
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader, reader_of
from llmb.measure.result import FAILED, UNKNOWN, Metrics, Result
from llmb.plugins import answers
from llmb.plugins.guard import rejected
from llmb.plugins.loaded import Plugins

_NO_LOG = Path("/nonexistent/run/log.out")
_STEP_LINE = re.compile(r"llmb step \d{1,12}/\d{1,12}(.*)")
_VALUE = re.compile(r"(?<!\S)([A-Za-z][A-Za-z0-9_]*)\s?[=:]\s?(?:[-+]?[\d.]|(?i:nan|inf)\b)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOnly(RunRecord):
    """A run of which there is only a log, in ``file``.

    Its other values are those of the size's first job.
    """

    file: Path

    @property
    def log(self) -> Path:
        return self.file

    @property
    def work(self) -> Path:
        """The folder of the file. Hooks find the run's other files there."""
        return self.file.parent


def reader_for_log(
    workload: api.Workload, size: str | None, log: Path, plugins: Plugins
) -> LogReader:
    """Return the reader for ``log`` of a run of ``size`` (None: the default). Raises LlmbError."""
    name = size or workload.default_size
    run = None
    if plugins.reads_runs(workload):
        job = next(workload_trial.jobs_of(workload, name, plugins.gpu_types), None)
        if job is None:
            return reader_of(workload, name, None, plugins.failures)
        run = _run_of(job, log)
    return reader_of(workload, name, plugins.parse_log(workload, name, log, run), plugins.failures)


def readers_of_logs(
    workloads: Mapping[str, api.Workload], required: str | None, log: Path, plugins: Plugins
) -> dict[tuple[str, str], LogReader]:
    """Return readers by workload and size, of ``required`` and of all that declare metrics.

    A plugin that fails is skipped, unless it is required. Raises LlmbError.
    """
    readers = {}
    for key, workload in workloads.items():
        for size in workload.sizes if key == required or workload.metrics else ():
            try:
                readers[key, size] = reader_for_log(workload, size, log, plugins)
            except LlmbError:
                if key == required:
                    raise
    return readers


def _run_of(job: api.Job, log: Path) -> LogOnly:
    return LogOnly(
        id="log",
        created=0.0,
        llmb_version="",
        cluster_type="slurm",
        directory=log.parent,
        job=job,
        launch=api.Launch(
            name=job.experiment_name,
            nodes=job.nodes,
            ranks_per_node=job.gpus_per_node,
            time_limit=job.time_limit,
            program=api.Program(module="unknown"),
        ),
        script_name="",
        submitter=ProcessId(host="", pid=0, start=0.0, boot=""),
        file=log,
    )


def result_of_trial(
    workload: api.Workload,
    size: str | None,
    log: Path,
    plugins: Plugins,
    window: Window | None = None,
) -> Result:
    """Read ``log`` of a run of ``size`` (None: the default) by its plugin. Raises LlmbError."""
    name = size or workload.default_size
    return result_of_log(
        log,
        reader_for_log(workload, name, log, plugins),
        window,
        workloads={workload.key: workload},
        overrides=Settings(workload=workload.key, model_size=name),
        types=plugins.gpu_types,
        windows=plugins.windows,
    )


def undeclared(workload: api.Workload, log: Path) -> dict[str, str]:
    """Return undeclared names in the lines `llmb step` of ``log``, with the nearest declared.

    Empty for a log that cannot be read, which its result says.
    """
    declared = [STEP_TIME, *(metric.name for metric in workload.metrics)]
    names: dict[str, None] = {}
    with contextlib.suppress(OSError), open_log(log) as stream:
        for block in read_blocks(stream):
            text = block.data[block.low : block.filled].decode("utf-8", "replace")
            names |= dict.fromkeys(
                name for line in _STEP_LINE.findall(text) for name in _VALUE.findall(line)
            )
    return {name: suggest(name, declared) for name in names if name not in declared}


def sample_faults(
    workload: api.Workload, plugins: Plugins, command: str = "llmb-run plugins check"
) -> Iterator[Fault]:
    """The fault of reading logs: the sample log is missing, or its headline metric is not measured.

    Or ``llmb_parse`` fails for a run whose log does not exist yet. ``command`` knows the plugins.
    """
    try:
        reader_for_log(workload, None, _NO_LOG, plugins)
    except LlmbError as error:
        yield author_fault(error, plugins.offers[workload.key].source)
        return
    sample = workload.sample_log
    if sample is None or workload.file is None:
        return
    place = yamlfile.load(workload.file).place(("sample_log",))
    if sample.size is not None and sample.size not in workload.sizes:
        message, hint = f"unknown size '{sample.size}'", suggest(sample.size, list(workload.sizes))
        yield _fault(
            place, f"sample_log.size: {message}", hint, code="size-unknown", value=sample.size
        )
        return
    log = workload.file.parent / sample.file
    if not log.is_file():
        hint = "write a log of your program to it; a wheel must include it"
        yield _fault(place, f"{log} does not exist", hint, code="sample-missing", value=str(log))
        return
    shown = f"{command} --log {log} -w {workload.key}_{sample.size or workload.default_size}"
    try:
        result = result_of_trial(workload, sample.size, log, plugins)
        if result.unreadable:
            yield _fault(place, str(result.reason), shown, code="log-unreadable", value=str(log))
            return
        if result.status != UNKNOWN and (fault := _incomplete(workload, sample.size, log, plugins)):
            yield fault
            return
    except LlmbError as error:
        yield author_fault(error, "" if isinstance(error, PluginError) else place)
        return
    if not result.metrics.has_figures:
        suggestions = "; ".join(
            f"'{name}' is not declared, {hint}" for name, hint in undeclared(workload, log).items()
        )
        yield _fault(
            place,
            f"{result.metrics.headline} is not measured: {result.reason or result.status}",
            suggestions or shown,
            code="headline-missing",
            value=result.metrics.headline,
        )
    elif result.status == FAILED:  # as where it lacks what must_have names
        message = f"a run with this sample log would fail: {result.reason}"
        yield _fault(place, message, shown, code="sample-fails", value=str(log))


def _incomplete(
    workload: api.Workload, size: str | None, log: Path, plugins: Plugins
) -> Fault | None:
    """Return the fault of the sample's first unusable value.

    A log without a step has another fault.
    """
    spec = reader_for_log(workload, size, log, plugins).spec
    samples = read_log(log, spec)
    if not samples.steps and spec.samples is None:
        return None
    try:
        answers.check_complete(samples, workload.metrics)
    except KeyFaultError as error:
        return author_fault(rejected(plugins.offers[workload.key].source, "llmb_parse", error))
    return None


def _fault(place: str, message: str, hint: str | None, *, code: str, value: str) -> Fault:
    return Fault(place=place, message=message, hint=hint, code=code, key="sample_log", value=value)


def lines_of_trial(result: Result) -> Iterator[str]:
    """Yield what was read of a log, in words: its steps, the window, and each metric."""
    metrics = result.metrics
    if metrics.max_iteration is None:
        yield f"no step: {result.reason or result.status}"
        return
    first = metrics.first_iteration
    last = f" of {metrics.steps - 1 + first}" if metrics.steps else ""
    yield f"steps: up to iteration {metrics.max_iteration + first}{last}"
    yield f"window: {metrics.window}" if metrics.window is not None else "window: unknown"
    yield from (f"{name}: {text}" for name, text in _in_words(metrics))
    if result.reason:
        yield f"note: {result.reason}"
    yield from (f"invalid: {cause}" for cause in metrics.invalid)


def _in_words(metrics: Metrics) -> Iterator[tuple[str, str]]:
    for name, metric in metrics.measured.items():
        mark = ", the headline" if name == metrics.headline else ""
        deviation = "" if metric.std is None else f" ± {metric.std:.3g}"
        value = f"{metric.mean:.6g}{deviation} {metric.unit}"
        count = "1 iteration" if metric.n == 1 else f"{metric.n} iterations"
        yield name, f"{value} ({count}, {metric.better} is better{mark})"
    if metrics.headline not in metrics.measured and metrics.headline not in TRAINING_BY_NAME:
        yield metrics.headline, "not measured"
