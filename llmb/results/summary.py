# SPDX-License-Identifier: Apache-2.0
"""What a run measured, kept in its folder once it has ended, so that later commands need not read its logs again.

The logs stay the source of truth: a summary is used only while they, and the run's state, are the files that it was
made from. Where the log has been deleted, it is all that is left.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

from llmb import __version__
from llmb.errors import LlmbError
from llmb.failures import Cause
from llmb.results import columns, find
from llmb.results.checkpoints import Checkpoints
from llmb.results.description import Configuration
from llmb.results.facts import LogFacts
from llmb.results.result import CANCELLED, FAILED, SUCCESS, Identity, Metrics, Result
from llmb.results.run_result import LogReader
from llmb.runs import store
from llmb.runs.record import RunRecord
from llmb.runs.state import JobState
from llmb.stats.measure import Window
from llmb.stats.metrics import STEP_TIME, Measured
from llmb.stats.statistics import Statistics
from llmb.system import files
from llmb.text import typed
from llmb.workload.flops import Flops, flops_of

SUMMARY, READER = "summary.json", "reader.json"
SCHEMA_VERSION = 1
_VERSION = "schema_version"
_DEFAULT = LogReader()
LOG_GONE = "the log has been deleted since"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A result as ``results --format json`` has it, without its verdict; ``path`` is relative to the run's folder."""

    experiment: str
    path: str
    status: Literal["Success", "Failed", "Cancelled"]
    reason: str | None = None
    window: tuple[int, ...] | None = None
    max_iteration: int | None = None
    steps: int | None = None
    days_per_1t_tokens: float | None = None
    model_flops: float | None = None
    flops_convention: str | None = None
    run: str | None = None
    state: str | None = None
    cause: Cause | None = None
    configuration: Configuration | None = None
    invalid: tuple[str, ...] = ()
    statistics: Statistics | None = None
    log: LogFacts | None = None
    checkpoints: Checkpoints | None = None
    first_iteration: int = 0
    metrics: dict[str, Measured]
    headline: str = STEP_TIME


_NAMES = tuple(own.name for own in fields(_Row))
_METRICS = tuple(own.name for own in fields(Metrics) if own.name in _NAMES and own.name not in ("window", "metrics"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A kept result and what it was made from.

    ``made_from``: size in bytes and time of the last change in ns of each file, and the latter of folders, by path
    relative to the run's folder; ``peak_tflops``: of one GPU; ``reader``: how the log was read, None for llmb's own.
    """

    llmb_version: str
    made_from: dict[str, tuple[int, ...]]
    peak_tflops: float | None = None
    reader: LogReader | None = None
    result: _Row

    @property
    def log_reader(self) -> LogReader:
        """How the log was read."""
        return self.reader or _DEFAULT

    def is_current(self, run: RunRecord, peak_tflops: float | None, flops: Flops | None = None) -> bool:
        """Whether nothing that it was made from has changed since, but that the log may have been deleted.

        ``flops``: of one sample by the plugin's own formula, None for llmb's.
        """
        same_llmb = (self.llmb_version, self.peak_tflops) == (__version__, peak_tflops)
        if self.result.model_flops is not None and run.job.training is not None:
            own = flops or flops_of(run.job.training.model)
            same_formula = (self.result.model_flops, self.result.flops_convention) == (own.total, own.convention)
            same_llmb = same_llmb and same_formula
        # Checkpoints are looked at each time: they are large, so they may be deleted.
        if same_llmb and self.result.checkpoints is None:
            folder = f"{run.directory}/"
            if all(_stamp(folder + name) == stamp for name, stamp in self.made_from.items()):
                return True
        return self.is_log_gone(run)

    def is_log_gone(self, run: RunRecord) -> bool:
        """Whether the log that it was made from does not exist any more."""
        path = f"{run.directory}/{self.result.path}"
        if run.origin is not None:  # its log is a link
            path = os.path.realpath(path)
        others = (f"{path}.gz", path.removesuffix(".gz"))  # compressed since, or no longer
        return bool(self.made_from.get(self.result.path)) and not any(map(os.path.lexists, (path, *others)))

    def result_of(self, run: RunRecord) -> Result:
        """The result, whose log may have been moved with its folder."""
        row = self.result
        metrics = {own: getattr(row, own) for own in _METRICS}
        window = None if row.window is None else Window(*row.window)
        gone = LOG_GONE if self.is_log_gone(run) else None
        return Result(
            identity=Identity(
                experiment=row.experiment,
                path=f"{run.directory}/{row.path}",
                run=row.run,
                configuration=row.configuration,
                framework=run.job.framework if run.job.training is not None else None,
            ),
            status=row.status,
            reason="; ".join(filter(None, (row.reason, gone))) or None,
            state=row.state,
            cause=row.cause,
            log=row.log or LogFacts(),
            checkpoints=row.checkpoints,
            metrics=Metrics(**metrics, window=window, measured=row.metrics),
        )


def load(run: RunRecord) -> Summary | None:
    """The summary of the run's current attempt; None where there is none, or it is damaged or of a newer release."""
    path = run.place / SUMMARY
    with contextlib.suppress(LlmbError):
        data = files.read_json(path)
        if isinstance(data, dict) and data.pop(_VERSION, None) == SCHEMA_VERSION:
            found = typed.read_own(Summary, path, data)
            return found if found.result.window is None or len(found.result.window) == 2 else None
    return None


def stamps_of(run: RunRecord, log: Path, state: JobState) -> dict[str, tuple[int, ...]] | None:
    """The stamps of all that a result of ``run`` is made from, before it is; None where no summary may be kept."""
    if not state.is_final or store.seen_state(run) != state:
        return None
    try:
        wanted = [run.place / store.STATE, log.parent, *find.logs_of(run)]
    except OSError:  # a folder that this user may not read
        return None
    found: dict[str, tuple[int, ...]] = {}
    for path in wanted:
        with contextlib.suppress(ValueError):  # a log outside of the run's folder
            found[str(path.relative_to(run.directory))] = _stamp(str(path))
    return found if found.get(str((run.place / store.STATE).relative_to(run.directory))) else None


def keep(
    run: RunRecord, result: Result, reader: LogReader, peak_tflops: float | None, stamps: Mapping[str, tuple[int, ...]]
) -> None:
    """Keep the ``result`` of a run that has ended. A folder that cannot be written to is left as it is."""
    if result.status not in (SUCCESS, FAILED, CANCELLED) or not run.place.is_dir():
        return
    try:
        path = str(Path(result.identity.path).relative_to(run.directory))
    except ValueError:
        return
    row = _Row(**{name: columns.json_value(result, name) for name in _NAMES} | {"path": path})
    summary = {
        _VERSION: SCHEMA_VERSION,
        "llmb_version": __version__,
        "made_from": {name: stamps[name] for name in _used(result, path, stamps)},
        "peak_tflops": peak_tflops,
        "reader": None if reader == _DEFAULT else reader,
        "result": row,
    }
    with contextlib.suppress(LlmbError):
        text = json.dumps(_compact(summary), ensure_ascii=False) + "\n"
        files.write_text(run.place / SUMMARY, text, durable=False)


def keep_reader(run: RunRecord, reader: LogReader) -> None:
    """Keep how the log of a new run is to be read, unless as llmb reads any log: its plugin may be gone by then.

    A plugin that reads logs itself has read nothing yet, so that nothing is kept.
    """
    if reader == _DEFAULT or reader.spec.samples is not None:
        return
    with contextlib.suppress(LlmbError):
        text = json.dumps(_compact({_VERSION: SCHEMA_VERSION, "reader": reader}), ensure_ascii=False) + "\n"
        files.write_text(run.directory / READER, text, durable=False)


def kept_reader(run: RunRecord) -> LogReader | None:
    """The reader that was kept when the run was made; None without one, or where it cannot be read."""
    path = run.directory / READER
    with contextlib.suppress(LlmbError):
        data = files.read_json(path)
        if isinstance(data, dict) and data.get(_VERSION) == SCHEMA_VERSION:
            return typed.read_own(LogReader, path, data.get("reader"))
    return None


def _compact(value: Any) -> Any:
    """``value`` as plain data, without the fields of dataclasses that have their defaults: half as long."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {own.name: (getattr(value, own.name), _default(own)) for own in fields(value)}
        return {name: _compact(item) for name, (item, default) in found.items() if item != default}
    if isinstance(value, Mapping):
        return {name: _compact(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_compact(item) for item in value]
    return typed.to_data(value)


def _default(own: Field[Any]) -> Any:
    return own.default if own.default_factory is MISSING else own.default_factory()


def _used(result: Result, log: str, stamps: Mapping[str, Any]) -> Iterable[str]:
    """The files that the result depends on: of a run that succeeded, its other logs do not matter."""
    if result.status != SUCCESS:
        return stamps
    return [name for name, stamp in stamps.items() if len(stamp) != 2 or name == log or name.endswith(store.STATE)]


def _stamp(path: str) -> tuple[int, ...]:
    """Size and time of the last change of a file; of a folder only the time, and nothing of what does not exist."""
    try:
        found = os.stat(path)  # noqa: PTH116 - for each of thousands
    except OSError:
        return ()
    is_folder = found.st_mode & 0o170000 == 0o040000
    return (found.st_mtime_ns,) if is_folder else (found.st_size, found.st_mtime_ns)
