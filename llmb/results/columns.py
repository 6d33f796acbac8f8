# SPDX-License-Identifier: Apache-2.0
"""Results as data and as tables: JSON, the columns of CSV, and those that people read."""

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from llmb.failures import Cause
from llmb.results.facts import Checkpoints, CheckpointTime, LogFacts, in_words
from llmb.results.result import (
    FAILED,
    FIELDS,
    SUCCESS,
    TFLOPS_PER_GPU,
    Configuration,
    Metrics,
    Reference,
    Result,
    json_value,
)
from llmb.stats.measure import Statistics, Window, default_window
from llmb.text import typed
from llmb.text.tables import Column


def report(results: Sequence[Result]) -> dict[str, Any]:
    """What ``--format json`` prints: the common window (null where they differ), each result, and a summary.

    The success rate is of runs with status Success or Failed, in whole percent rounded down: 100 means all of them.
    """
    windows = {result.metrics.window for result in results if result.metrics.window is not None}
    common = (windows or {default_window(50)}).pop() if len(windows) < 2 else None
    succeeded = sum(result.status == SUCCESS for result in results)
    failed = sum(result.status == FAILED for result in results)
    ended = succeeded + failed
    return {
        "analysis": {
            "min_iteration": common.first if common else None,
            "max_iteration": common.last if common else None,
        },
        "results": [{key: typed.to_data(json_value(result, key)) for key in FIELDS} for result in results],
        "summary": {
            "success_experiments": succeeded,
            "failed_experiments": failed,
            "success_rate": 100 * succeeded // ended if ended else None,
        },
    }


_BARE = (Configuration,)  # its fields keep their names, unless a result has them too
_ENDS = ("ratio_interval", "interval")  # a lower and an upper end, which become two columns
_OMITTED = (CheckpointTime,)  # each event: the last ones are in `checkpoints`
_NESTED = {
    "reference": Reference,
    "cause": Cause,
    "configuration": Configuration,
    "statistics": Statistics,
    "log": LogFacts,
    "checkpoints": Checkpoints,
}


class _Leaf(NamedTuple):
    """One column of CSV: its key, the field of the result, the names below it, and which end of an interval it is."""

    key: str
    field: str
    below: tuple[str, ...] = ()
    end: int | None = None


@cache
def _leaves() -> tuple[_Leaf, ...]:
    """The columns in the order of the fields; nested values come last, with the name of their owner before theirs."""
    leaves: dict[str, _Leaf] = {}
    found = [leaf for name in FIELDS for leaf in _walk(name, name, _NESTED.get(name), ())]
    for leaf in sorted(found, key=lambda leaf: bool(leaf.below)):
        leaves.setdefault(leaf.key, leaf)
    return tuple(leaves.values())


def _walk(field: str, key: str, cls: type | None, below: tuple[str, ...]) -> Iterator[_Leaf]:
    if cls is None:
        name = below[-1] if below else field
        if name in _ENDS:
            stem = key.removesuffix("_interval")
            yield from (_Leaf(f"{stem}_{word}", field, below, end) for end, word in enumerate(("low", "high")))
        else:
            yield _Leaf(key, field, below)
        return
    hints = typing.get_type_hints(cls)
    prefix = "" if cls in _BARE else f"{key}_"
    for own in dataclasses.fields(cls):
        kinds = (hints[own.name], *typing.get_args(hints[own.name]))
        inner = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
        if inner not in _OMITTED:
            assert inner is None or isinstance(inner, type)
            yield from _walk(field, prefix + own.name, inner, (*below, own.name))


def _value(result: Result, leaf: _Leaf) -> Any:
    value: Any = json_value(result, leaf.field)
    for name in leaf.below:
        value = None if value is None else getattr(value, name)
    return value if leaf.end is None or value is None else value[leaf.end]


def _text(value: Any) -> Any:
    if isinstance(value, Window):
        return str(value)
    if isinstance(value, Mapping):
        return " ".join(f"{key}={item}" for key, item in sorted(value.items())) or None
    if isinstance(value, (tuple, list)):
        between = "; " if any(" " in str(item) for item in value) else " "
        return between.join(map(str, value)) or None
    return value


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


CSV_FIRST = [
    "filename",
    "status",
    "time_mean_seconds",
    "time_std_dev_seconds",
    "tflops_per_gpu_mean",
    "tflops_per_gpu_std_dev",
    "max_iteration",
]
_TABLE = (
    Column(key="run"),
    Column(key="experiment"),
    Column(key="status"),
    Column(key="step_time", heading="step (s)", show="{:.3f}".format, right=True),
    Column(key="deviation", heading="±", show="{:.3f}".format, right=True, optional=True),
    Column(key="tokens_per_second_per_gpu", heading="tokens/s/GPU", show="{:.1f}".format, right=True, optional=True),
    Column(key="mfu", heading="MFU %", show=_percent, right=True, optional=True),
    Column(key="tflops", heading="TFLOPS/GPU", right=True, optional=True),
    Column(key="tokens_per_second", heading="tokens/s", show="{:.0f}".format, right=True, optional=True),
    Column(key="mfu_reference", heading="MFU % by the reference's formula", show=_percent, right=True, optional=True),
    Column(key="ratio", right=True),
    Column(key="verdict"),
    Column(key="reason"),
)
_COPIED = ("run", "experiment", "status", "tokens_per_second", "tokens_per_second_per_gpu", "mfu")
_NOT_COMPARED = "NO_REFERENCE"
_OPTIONS = {  # of parse, for each name in Identity.missing
    "workload": "-w W_SIZE",
    "dtype": "--dtype D",
    "scale": "--scale N",
    "gbs": "--gbs N",
    "gpu_type": "--gpu-type TYPE",
}
_EXPLAINED_BY_REASON = ("INVALID", "INCONCLUSIVE", _NOT_COMPARED)  # verdicts that the ratio does not explain


def csv_columns() -> list[Column]:
    """The columns of CSV: all fields, those of the contract first."""
    return [Column(key=key) for key in dict.fromkeys((*CSV_FIRST, *(leaf.key for leaf in _leaves())))]


def csv_rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    """The rows of CSV: lists as words with blanks between them, mappings as K=V, a window as ``--window`` takes it."""
    return [
        {leaf.key: _text(_value(result, leaf)) for leaf in _leaves()} | {"filename": Path(result.identity.path).name}
        for result in results
    ]


def table_of(results: Sequence[Result]) -> tuple[list[Column], list[dict[str, Any]]]:
    """The columns and rows of a table of ``results``; columns without a value are omitted.

    Where at least one run has something to be compared with, verdicts take the place of statuses: a run without a
    verdict shows its status there.
    """
    compared = any(result.verdict.word not in (None, _NOT_COMPARED) for result in results)
    rows = [_row(result, compared=compared) for result in results]
    omitted = "status" if compared else "verdict"
    columns = [own for own in _TABLE if own.key != omitted and any(row[own.key] is not None for row in rows)]
    return columns, rows


def _row(result: Result, *, compared: bool) -> dict[str, Any]:
    verdict = result.verdict
    star = "" if verdict.same_window else "*"  # the published figure was taken over another window
    same_formula = verdict.reference_flops_convention == result.metrics.flops_convention
    word = f"{verdict.word} (n={verdict.repeats})" if verdict.repeats else verdict.word
    why = verdict.reason if compared and verdict.word in _EXPLAINED_BY_REASON else None
    return {
        **{name: json_value(result, name) for name in _COPIED},
        "step_time": result.metrics.step_time,
        "deviation": result.metrics.step_time_deviation,
        "tflops": _tflops(result.metrics),
        "mfu_reference": None if same_formula else verdict.mfu_reference_convention,
        "ratio": None if verdict.ratio is None else f"{verdict.ratio:.3f}{star}",
        "verdict": word or result.status,
        "reason": "; ".join(filter(None, (result.reason, why, *in_words(result.checkpoints)))) or None,
    }


def legend(results: Iterable[Result]) -> list[str]:
    """What needs to be explained below a table of ``results``, a line each."""
    results = list(results)
    verdicts = [result.verdict for result in results]
    windows = {one.reference.window for one in verdicts if one.reference and one.same_window is False}
    lines = [f"* the published figure was taken over another window: {', '.join(sorted(windows))}"] if windows else []
    configurations = [result.identity.configuration for result in results]
    if any(own is not None and own.gpu_type is None for own in configurations):
        lines.append("no verdict without a GPU type, which a log does not name: add --gpu-type h100, for example")
    unknown = [
        result.identity
        for result in results
        if result.verdict.word == _NOT_COMPARED and result.identity.configuration is None
    ]
    if unknown:
        missing = {word for identity in unknown for word in identity.missing}
        options = " ".join(option for word, option in _OPTIONS.items() if word in missing)
        lines.append(f"no verdict where a log does not say what it is of; describe it with {options}")
    if results and not lines and all(verdict.word == _NOT_COMPARED for verdict in verdicts):
        lines.append(_no_verdicts(results))
    return lines


def _no_verdicts(results: Sequence[Result]) -> str:
    """Why no result has anything to be compared with; ``explain`` does not know logs without a run."""
    if all(result.identity.run is not None for result in results):
        return "no verdicts: nothing is published for these configurations (llmb-run explain RUN says more)"
    reasons = {result.verdict.reason for result in results}
    if len(reasons) == 1:
        return f"no verdicts: {reasons.pop()}"
    return "no verdicts: nothing is published for these configurations (--format csv shows what differs)"


def tflops(value: float) -> str:
    """TFLOPS of one GPU for people: two decimals, and three digits for the little that a CPU does."""
    return f"{value:.2f}" if value >= 10 else f"{value:.3g}"


def _tflops(metrics: Metrics) -> str | None:
    """TFLOPS by our formula; of a log of an unknown model, as the framework logs them."""
    if metrics.model_tflops_per_gpu is not None:
        return tflops(metrics.model_tflops_per_gpu)
    logged = metrics.measured.get(TFLOPS_PER_GPU)
    return None if logged is None else f"{logged.mean:.2f} ± {logged.deviation:.2f}"
