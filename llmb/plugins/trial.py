# SPDX-License-Identifier: Apache-2.0
"""How a plugin reads a log that belongs to no run, as `parse -w` and `plugins check --log` do."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmb import api
from llmb.errors import Fault, KeyFaultError, LlmbError, PluginError, author_fault
from llmb.logs.reader import read_log
from llmb.logs.scan import open_log, read_blocks
from llmb.plugins import checkup, complete
from llmb.plugins.loaded import Plugins
from llmb.results.description import Description
from llmb.results.log_result import result_of_log
from llmb.results.result import UNKNOWN, Metrics, Result
from llmb.results.run_result import LogReader, reader_of
from llmb.runs.record import RunRecord
from llmb.stats.measure import Window
from llmb.stats.metrics import STEP_TIME, TRAINING_BY_NAME
from llmb.system.guard import rejected
from llmb.system.process import ProcessId
from llmb.text import yamlfile
from llmb.text.names import suggest

_NO_LOG = Path("/nonexistent/run/log.out")
_STEP_LINE = re.compile(r"llmb step \d{1,12}/\d{1,12}(.*)")
_VALUE = re.compile(r"(?<!\S)([A-Za-z][A-Za-z0-9_]*)\s?[=:]\s?(?:[-+]?[\d.]|(?i:nan|inf)\b)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOnly(RunRecord):
    """A run of which there is only a log, in the ``file``; its other values are those of the size's first job."""

    file: Path

    @property
    def log(self) -> Path:
        return self.file

    @property
    def work(self) -> Path:
        """The folder of the file, where a hook finds the other files of the run."""
        return self.file.parent


def reader_for_log(workload: api.Workload, size: str | None, log: Path, plugins: Plugins) -> LogReader:
    """How the plugin of ``workload`` reads ``log`` of a run of ``size`` (None: the default). Raises LlmbError."""
    name = size or workload.default_size
    job = next(checkup.jobs_of(workload, name, plugins.gpu_types), None)
    spec = None if job is None else plugins.parse(workload, _run_of(job, log))
    return reader_of(workload, name, spec)


def readers_of_logs(
    workloads: Mapping[str, api.Workload], wanted: str | None, log: Path, plugins: Plugins
) -> dict[tuple[str, str], LogReader]:
    """The readers of logs by workload and size: of the ``wanted`` workload, and of those that declare metrics.

    A plugin that fails is skipped, unless it is wanted. Raises LlmbError.
    """
    found = {}
    for key, workload in workloads.items():
        for size in workload.sizes if key == wanted or workload.metrics else ():
            try:
                found[key, size] = reader_for_log(workload, size, log, plugins)
            except LlmbError:
                if key == wanted:
                    raise
    return found


def _run_of(job: api.Job, log: Path) -> LogOnly:
    launch = api.Launch(
        name=job.experiment_name,
        nodes=job.nodes,
        ranks_per_node=job.gpus_per_node,
        time_limit=job.time_limit,
        program=api.Program(module="unknown"),
    )
    return LogOnly(
        id="log",
        created=0.0,
        llmb_version="",
        cluster_type="slurm",
        directory=log.parent,
        job=job,
        launch=launch,
        script_name="",
        submitter=ProcessId(host="", pid=0, start=0.0, boot=""),
        file=log,
    )


def result_of_trial(
    workload: api.Workload, size: str | None, log: Path, plugins: Plugins, window: Window | None = None
) -> Result:
    """What the plugin of ``workload`` reads of ``log``, of a run of ``size`` (None: the default). Raises LlmbError."""
    name = size or workload.default_size
    known = {workload.key: workload}
    given = Description(workload=workload.key, size=name)
    reader = reader_for_log(workload, name, log, plugins)
    return result_of_log(log, reader, window, workloads=known, given=given, types=plugins.gpu_types)


def undeclared(workload: api.Workload, log: Path) -> dict[str, str]:
    """Names in the lines `llmb step` of ``log`` that the workload does not declare, with the nearest that it does.

    None of a log that cannot be read, which its result says.
    """
    known = [STEP_TIME, *(metric.name for metric in workload.metrics)]
    names: dict[str, None] = {}
    with contextlib.suppress(OSError), open_log(log) as stream:
        for block in read_blocks(stream):
            text = block.data[block.low : block.filled].decode("utf-8", "replace")
            names |= dict.fromkeys(name for line in _STEP_LINE.findall(text) for name in _VALUE.findall(line))
    return {name: suggest(name, known) for name in names if name not in known}


def sample_faults(workload: api.Workload, plugins: Plugins) -> Iterator[Fault]:
    """The fault of reading logs: the sample log is missing, or its headline metric is not measured.

    Or ``llmb_parse`` fails for a run whose log does not exist yet.
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
        yield _fault(place, f"sample_log.size: {message}", hint, code="size-unknown", value=sample.size)
        return
    log = workload.file.parent / sample.file
    if not log.is_file():
        hint = "write a log of your program to it; a wheel must include it"
        yield _fault(place, f"{log} does not exist", hint, code="sample-missing", value=str(log))
        return
    shown = f"llmb-run plugins check --log {log} -w {workload.key}_{sample.size or workload.default_size}"
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
        meant = "; ".join(f"'{name}' is not declared, {hint}" for name, hint in undeclared(workload, log).items())
        message = f"{result.metrics.headline} is not measured: {result.reason or result.status}"
        yield _fault(place, message, meant or shown, code="headline-missing", value=result.metrics.headline)


def _incomplete(workload: api.Workload, size: str | None, log: Path, plugins: Plugins) -> Fault | None:
    """The fault of the first value in the sample that is none; a log in which no step is found has another one."""
    spec = reader_for_log(workload, size, log, plugins).spec
    samples = read_log(log, spec)
    if not samples.steps and spec.samples is None:
        return None
    try:
        complete.check_complete(samples, workload.metrics)
    except KeyFaultError as error:
        return author_fault(rejected(plugins.offers[workload.key].source, "llmb_parse", error))
    return None


def _fault(place: str, message: str, hint: str | None, *, code: str, value: str) -> Fault:
    return Fault(place=place, message=message, hint=hint, code=code, key="sample_log", value=value)


def lines_of_trial(result: Result) -> Iterator[str]:
    """What was read of a log, in words: its steps, the window, and each metric."""
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
    yield from (f"invalid: {why}" for why in metrics.invalid)


def _in_words(metrics: Metrics) -> Iterator[tuple[str, str]]:
    for name, one in metrics.measured.items():
        mark = ", the headline" if name == metrics.headline else ""
        yield name, f"{one.mean:.6g} ± {one.std:.3g} {one.unit} ({one.n} iterations, {one.better} is better{mark})"
    if metrics.headline not in metrics.measured and metrics.headline not in TRAINING_BY_NAME:
        yield metrics.headline, "not measured"
