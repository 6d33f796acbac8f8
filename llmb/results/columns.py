# SPDX-License-Identifier: Apache-2.0
"""Results as data and as tables: JSON, the columns of CSV, and those that people read."""

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from llmb.results.facts import CheckpointTime, in_words
from llmb.results.result import FAILED, SUCCESS, Configuration, Result
from llmb.stats.measure import Window, default_window
from llmb.text import typed
from llmb.text.tables import Column


def report(results: Sequence[Result]) -> dict[str, Any]:
    """Plain data: the window common to all (null where they differ), each result, and how many succeeded.

    The success rate is of the runs that have ended, in whole percent rounded down, so that 100 means all of them.
    """
    windows = {result.window for result in results if result.window is not None}
    common = (windows or {default_window(50)}).pop() if len(windows) < 2 else None
    succeeded = sum(result.status == SUCCESS for result in results)
    failed = sum(result.status == FAILED for result in results)
    ended = succeeded + failed
    return {
        "analysis": {
            "min_iteration": common.first if common else None,
            "max_iteration": common.last if common else None,
        },
        "results": [typed.to_data(result) for result in results],
        "summary": {
            "success_experiments": succeeded,
            "failed_experiments": failed,
            "success_rate": 100 * succeeded // ended if ended else None,
        },
    }


_BARE = (Configuration,)  # its fields keep their names, but for those that a result has too
_ENDS = ("ratio_interval", "interval")  # a lower and an upper end, which become two columns
_LEFT_OUT = (CheckpointTime,)  # each event: the last ones are in `checkpoints`


class _Leaf(NamedTuple):
    """One column: its key, the way to its value, and which end of an interval it is."""

    key: str
    way: tuple[str, ...]
    end: int | None = None


def csv_keys() -> list[str]:
    """The columns of a result, in the order of its fields."""
    return [leaf.key for leaf in _leaves()]


def flat(result: Result) -> dict[str, Any]:
    """The values of the columns: lists as words with blanks between, mappings as K=V, a window as ``--window`` does."""
    return {leaf.key: _text(_value(result, leaf)) for leaf in _leaves()}


@cache
def _leaves() -> tuple[_Leaf, ...]:
    leaves: dict[str, _Leaf] = {}
    for leaf in sorted(_walk(Result, (), ""), key=lambda leaf: len(leaf.way) > 1):
        leaves.setdefault(leaf.key, leaf)
    return tuple(leaves.values())


def _walk(cls: type, way: tuple[str, ...], before: str) -> Iterator[_Leaf]:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        own, key = (*way, field.name), before + field.name
        kinds = (hints[field.name], *typing.get_args(hints[field.name]))
        inner = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
        if inner in _LEFT_OUT:
            continue
        if inner is not None:
            assert isinstance(inner, type)
            yield from _walk(inner, own, before if inner in _BARE else f"{key}_")
        elif field.name in _ENDS:
            stem = key.removesuffix("_interval")
            yield from (_Leaf(f"{stem}_{word}", own, end) for end, word in enumerate(("low", "high")))
        else:
            yield _Leaf(key, own)


def _value(result: Result, leaf: _Leaf) -> Any:
    value: Any = result
    for name in leaf.way:
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


CSV_FIRST = (
    "filename",
    "status",
    "time_mean_seconds",
    "time_std_dev_seconds",
    "tflops_per_gpu_mean",
    "tflops_per_gpu_std_dev",
    "max_iteration",
)


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
_PLAIN = ("run", "experiment", "status", "tokens_per_second", "tokens_per_second_per_gpu", "mfu")
_NOT_COMPARED = "NO_REFERENCE"
_OPTIONS = {  # of parse, by the words of Result.not_said
    "workload": "-w W_SIZE",
    "dtype": "--dtype D",
    "scale": "--scale N",
    "gbs": "--gbs N",
    "gpu_type": "--gpu-type TYPE",
}
_TELLING = ("INVALID", "INCONCLUSIVE", _NOT_COMPARED)  # verdicts that the ratio does not explain


def csv_columns() -> list[Column]:
    """The columns of CSV: all fields, those of the contract first."""
    return [Column(key=key) for key in dict.fromkeys((*CSV_FIRST, *csv_keys()))]


def csv_rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    """The rows of CSV, one plain value in each cell."""
    return [{**flat(result), "filename": Path(result.path).name} for result in results]


def table_of(results: Sequence[Result]) -> tuple[list[Column], list[dict[str, Any]]]:
    """The columns and rows of a table of ``results``; columns without a value are omitted.

    Where at least one run has something to be compared with, verdicts take the place of statuses: a run without a
    verdict shows its status there.
    """
    compared = any(result.verdict not in (None, _NOT_COMPARED) for result in results)
    rows = [_row(result, compared=compared) for result in results]
    omitted = "status" if compared else "verdict"
    columns = [own for own in _TABLE if own.key != omitted and any(row[own.key] is not None for row in rows)]
    return columns, rows


def _row(result: Result, *, compared: bool) -> dict[str, Any]:
    return {
        **{name: getattr(result, name) for name in _PLAIN},
        "step_time": result.time_mean_seconds,
        "deviation": None if result.time_mean_seconds is None else result.time_std_dev_seconds or 0.0,
        "tflops": _tflops(result),
        "mfu_reference": _mfu_by_another_formula(result),
        "ratio": _ratio(result),
        "verdict": _verdict(result) or result.status,
        "reason": _reason(result, compared=compared),
    }


def _mfu_by_another_formula(result: Result) -> float | None:
    """The MFU in the convention of the reference, where that is not ours."""
    return None if result.reference_flops_convention == result.flops_convention else result.mfu_reference_convention


def _ratio(result: Result) -> str | None:
    """With a star where the published figure was taken over another window."""
    return None if result.ratio is None else f"{result.ratio:.3f}{'' if result.same_window else '*'}"


def _verdict(result: Result) -> str | None:
    return f"{result.verdict} (n={result.repeats})" if result.repeats else result.verdict


def _reason(result: Result, *, compared: bool) -> str | None:
    why = result.verdict_reason if compared and result.verdict in _TELLING else None
    return "; ".join(text for text in (result.reason, why, *in_words(result.checkpoints)) if text) or None


def legend(results: Iterable[Result]) -> list[str]:
    """What a table of ``results`` leaves to be explained, a line each."""
    results = list(results)
    windows = {result.reference.window for result in results if result.reference and result.same_window is False}
    lines = [f"* the published figure was taken over another window: {', '.join(sorted(windows))}"] if windows else []
    if any(result.configuration and result.configuration.gpu_type is None for result in results):
        lines.append("a log does not say its GPU type: --gpu-type h100 compares with what was published for it")
    unknown = [result for result in results if result.verdict == _NOT_COMPARED and result.configuration is None]
    if unknown:
        missing = {word for result in unknown for word in result.not_said}
        options = " ".join(option for word, option in _OPTIONS.items() if word in missing)
        lines.append(f"no verdict where a log does not say what it is of; say it: {options}")
    if results and not lines and all(result.verdict == _NOT_COMPARED for result in results):
        lines.append(_no_verdicts(results))
    return lines


def _no_verdicts(results: Sequence[Result]) -> str:
    """Why no result has anything to compare with; a log without a run is not known to ``explain``."""
    if all(result.run is not None for result in results):
        return "no verdicts: nothing is published for these configurations (llmb-run explain RUN says more)"
    reasons = {result.verdict_reason for result in results}
    if len(reasons) == 1:
        return f"no verdicts: {reasons.pop()}"
    return "no verdicts: nothing is published for these configurations (--format csv says what differs)"


def tflops(value: float) -> str:
    """TFLOPS of one GPU for people: two decimals, and three digits for the little that a CPU does."""
    return f"{value:.2f}" if value >= 10 else f"{value:.3g}"


def _tflops(result: Result) -> str | None:
    """By our formula; for a log without a shape, as the framework says."""
    if result.model_tflops_per_gpu is not None:
        return tflops(result.model_tflops_per_gpu)
    return _spread(result.tflops_per_gpu_mean, result.tflops_per_gpu_std_dev, 2)


def _spread(mean: float | None, deviation: float | None, digits: int) -> str | None:
    return None if mean is None else f"{mean:.{digits}f} ± {deviation or 0:.{digits}f}"
