# SPDX-License-Identifier: Apache-2.0
"""Results of ended runs, kept in their folders so that later commands need not read logs again.

The logs stay the source of truth: a summary is used only while they, and the run's state, are the
files that it was made from. After the log has been deleted, it is all that remains.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

from llmb import __version__
from llmb.contract.flops import Flops, flops_of
from llmb.contract.metrics import STEP_TIME, Measured
from llmb.contract.record import RunRecord
from llmb.contract.settings import Settings
from llmb.contract.state import JobState
from llmb.contract.window import Window
from llmb.core import files, typed
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb.measure import columns, find_logs
from llmb.measure.checkpoints import Checkpoints
from llmb.measure.facts import LogFacts, NodeFacts
from llmb.measure.failure_causes import Cause
from llmb.measure.losses import LossCurve
from llmb.measure.reader import OWN_READER, LogReader
from llmb.measure.result import CANCELLED, FAILED, SUCCESS, Identity, Metrics, Result
from llmb.measure.statistics import Statistics
from llmb.measure.sustained import Sustained
from llmb.run import sessions, store

SUMMARY = "summary.json"
SCHEMA_VERSION = 1
_VERSION = "schema_version"
LOG_GONE = "the log has been deleted since"
EARLIER = "measured at an earlier reading: this one finds less"
ONE_WINDOW = "only its default window was kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A result in ``results --format json`` without its verdict, its path relative to the run."""

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
    configuration: Settings | None = None
    invalid: tuple[str, ...] = ()
    statistics: Statistics | None = None
    log: LogFacts | None = None
    checkpoints: Checkpoints | None = None
    first_iteration: int = 0
    metrics: dict[str, Measured]
    headline: str = STEP_TIME
    nodes: tuple[NodeFacts, ...] = ()
    losses: LossCurve | None = None
    sustained: Sustained | None = None


_NAMES = tuple(key.name for key in fields(_Row))
_METRICS = tuple(
    key.name
    for key in fields(Metrics)
    if key.name in _NAMES and key.name not in ("window", "metrics")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A kept result and its sources."""

    llmb_version: str
    #: Bytes and last change (ns) of each file, the change of folders, by path below the run's own.
    made_from: dict[str, tuple[int, ...]]
    peak_tflops: float | None = None  #: of one GPU
    reader: LogReader | None = None  #: of the log, None for llmb's own
    result: _Row

    @property
    def log_reader(self) -> LogReader:
        """The reader that read the log."""
        return self.reader or OWN_READER

    @property
    def flops(self) -> Flops | None:
        """The operations of one sample, by the formula that the result was computed with."""
        total, convention = self.result.model_flops, self.result.flops_convention
        if total is None or convention is None:
            return None
        return Flops(convention=convention, terms={"model": total})

    def is_better_than(self, result: Result) -> bool:
        """Return True if the run has been measured, and the newer ``result`` has no measurement.

        What was measured stays true, whatever happens later to the log, to other files of the run
        and to the plugin that read them. A failure that is read as a success is news.
        """
        same_end = self.result.state == result.state
        return same_end and self.result.status == SUCCESS and result.status != SUCCESS

    def is_current(
        self, run: RunRecord, peak_tflops: float | None, flops: Flops | None = None
    ) -> bool:
        """Return True if none of its sources has changed since. The log may have been deleted.

        ``flops`` are of one sample by the plugin's own formula, None for llmb's.
        """
        same_llmb = (self.llmb_version, self.peak_tflops) == (__version__, peak_tflops)
        if self.result.model_flops is not None and run.job.training is not None:
            model = run.job.with_dotted.model
            formula = flops or (None if model is None else flops_of(model))
            same_formula = formula is not None and (
                self.result.model_flops,
                self.result.flops_convention,
            ) == (formula.total, formula.convention)
            same_llmb = same_llmb and same_formula
        # Checkpoints are looked at each time: they are large, so they may be deleted.
        if same_llmb and self.result.checkpoints is None:
            folder = f"{run.directory}/"
            if all(_stamp(folder + name) == stamp for name, stamp in self.made_from.items()):
                return True
        return self.is_log_gone(run)

    def is_log_gone(self, run: RunRecord) -> bool:
        """Return True if the log that it was made from does not exist any more."""
        path = f"{run.directory}/{self.result.path}"
        if run.origin is not None:  # its log is a link
            path = os.path.realpath(path)
        variants = (f"{path}.gz", path.removesuffix(".gz"))  # compressed since, or no longer
        return bool(self.made_from.get(self.result.path)) and not any(
            map(os.path.lexists, (path, *variants))
        )

    def result_of(self, run: RunRecord, note: str | None = None) -> Result:
        """Return the result with a ``note`` about it. Its log may have moved with its folder."""
        row = self.result
        metrics = {name: getattr(row, name) for name in _METRICS}
        window = None if row.window is None else Window(*row.window)
        log_note = LOG_GONE if self.is_log_gone(run) else None
        return Result(
            identity=Identity(
                experiment=row.experiment,
                path=f"{run.directory}/{row.path}",
                run=row.run,
                configuration=row.configuration,
                framework=run.job.framework if run.job.training is not None else None,
                session=sessions.session_of(run).id,
                pair=run.pair,
            ),
            status=row.status,
            reason="; ".join(filter(None, (row.reason, log_note or note))) or None,
            state=row.state,
            cause=row.cause,
            log=row.log or LogFacts(),
            checkpoints=row.checkpoints,
            nodes=row.nodes,
            metrics=Metrics(**metrics, window=window, measured=row.metrics),
        )

    def outside_of_window(self, run: RunRecord) -> Result:
        """The result for another window than the kept one, when nothing is left to measure it."""
        result = self.result_of(run)
        metrics = Metrics(
            max_iteration=result.metrics.max_iteration,
            steps=result.metrics.steps,
            first_iteration=result.metrics.first_iteration,
            headline=result.metrics.headline,
        )
        reason = "; ".join(filter(None, (result.reason, ONE_WINDOW)))
        return replace(result, metrics=metrics, reason=reason)


def load(run: RunRecord) -> Summary | None:
    """Return the summary of the run's current attempt, None if missing, damaged or too new."""
    path = f"{run.place}/{SUMMARY}"
    try:
        data = files.read_json(path)
        if not isinstance(data, dict) or data.pop(_VERSION, None) != SCHEMA_VERSION:
            return None
        summary = typed.read_own(Summary, path, data)
    except LlmbError:
        return None
    window = summary.result.window
    return summary if window is None or len(window) == 2 else None


def can_keep(run: RunRecord) -> bool:
    """Return True if the run's current attempt has no summary, and one can be written."""
    return not os.path.lexists(f"{run.place}/{SUMMARY}") and os.access(run.place, os.W_OK)


def stamps_of(run: RunRecord, log: Path, state: JobState) -> dict[str, tuple[int, ...]] | None:
    """Return the stamps of all sources of a result before it is made, None if it is not kept."""
    if not state.is_final or store.seen_state(run) != state:
        return None
    try:
        logs = find_logs.logs_of(run, log)
    except OSError:  # a folder that this user may not read
        return None
    folder, state_file = f"{run.directory}/", f"{run.place}/{store.STATE}"
    stamps = {
        path.removeprefix(folder): _stamp(path)
        for path in (state_file, str(log.parent), *map(str, logs))
        if path.startswith(folder)  # unlike a log elsewhere
    }
    return stamps if stamps.get(state_file.removeprefix(folder)) else None


def keep(
    run: RunRecord,
    result: Result,
    reader: LogReader,
    peak_tflops: float | None,
    stamps: Mapping[str, tuple[int, ...]],
) -> None:
    """Keep the ``result`` of a run that has ended, if its folder is writable."""
    if result.status not in (SUCCESS, FAILED, CANCELLED) or not files.is_folder(run.place):
        return
    folder = f"{run.directory}/"
    if not result.identity.path.startswith(folder):
        return
    path = result.identity.path.removeprefix(folder)
    row = _Row(**{name: columns.json_value(result, name) for name in _NAMES} | {"path": path})
    summary = {
        _VERSION: SCHEMA_VERSION,
        "llmb_version": __version__,
        "made_from": {name: stamps[name] for name in _used(result, path, stamps)},
        "peak_tflops": peak_tflops,
        "reader": None if reader == OWN_READER else reader,
        "result": row,
    }
    with contextlib.suppress(LlmbError):
        text = json.dumps(typed.compact_data(summary), ensure_ascii=False, allow_nan=False) + "\n"
        files.write_text(run.place / SUMMARY, text, durable=False)


def _used(result: Result, log: str, stamps: Mapping[str, Any]) -> Iterable[str]:
    """Return the files that the result depends on: only its own log for a run that succeeded."""
    if result.status != SUCCESS:
        return stamps
    return [
        name
        for name, stamp in stamps.items()
        if len(stamp) != 2 or name == log or name.endswith(store.STATE)
    ]


def _stamp(path: str) -> tuple[int, ...]:
    """Return size and last change of a file, or only the change of a folder."""
    try:
        status = os.stat(path)  # noqa: PTH116 - for each of thousands
    except OSError:
        return ()
    is_folder = status.st_mode & 0o170000 == 0o040000
    return (status.st_mtime_ns,) if is_folder else (status.st_size, status.st_mtime_ns)
