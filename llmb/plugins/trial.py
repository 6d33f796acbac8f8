# SPDX-License-Identifier: Apache-2.0
"""How a plugin reads a log that belongs to no run, as `parse -w` and `plugins check --log` do."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmb import api
from llmb.errors import LlmbError
from llmb.plugins.checkup import jobs_of
from llmb.plugins.loaded import Plugins
from llmb.results.log_reader import LogReader, reader_of
from llmb.results.result import Metrics, Result
from llmb.runs.record import RunRecord
from llmb.stats.metrics import TRAINING_BY_NAME
from llmb.system.process import ProcessId


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOnly(RunRecord):
    """A run of which there is only a log, in the ``file``; its other values are those of the size's first job."""

    file: Path

    @property
    def log(self) -> Path:
        """The file."""
        return self.file


def reader_for_log(workload: api.Workload, size: str | None, log: Path, plugins: Plugins) -> LogReader:
    """How the plugin of ``workload`` reads ``log`` of a run of ``size`` (None: the default). Raises LlmbError."""
    name = size or workload.default_size
    job = next(jobs_of(workload, name, plugins.gpu_types), None)
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
