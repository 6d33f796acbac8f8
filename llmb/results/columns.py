# SPDX-License-Identifier: Apache-2.0
"""Results as data and as tables: JSON, the columns of CSV, and those that people read."""

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from llmb.failures import Cause
from llmb.results.checkpoints import Checkpoints
from llmb.results.description import Configuration
from llmb.results.facts import CheckpointTime, LogFacts, Uneven
from llmb.results.result import FAILED, SUCCESS, Identity, Metrics, Reference, Result, Verdict
from llmb.stats import metrics
from llmb.stats.measure import Window, default_window
from llmb.stats.statistics import Statistics
from llmb.text import typed
from llmb.text.tables import Column


class JsonField(NamedTuple):
    """Where a field of the JSON form is in a ``Result``: the name of its part (empty: the result), and its own.

    ``mean`` and ``std`` are of the metric ``name``, where it was measured.
    """

    part: str
    name: str


# Names and order are the contract of `results --format json`.
FIELDS = {
    "experiment": JsonField("identity", "experiment"),
    "path": JsonField("identity", "path"),
    "status": JsonField("", "status"),
    "reason": JsonField("", "reason"),
    "window": JsonField("metrics", "window"),
    "max_iteration": JsonField("metrics", "max_iteration"),
    "steps": JsonField("metrics", "steps"),
    "time_mean_seconds": JsonField("mean", metrics.STEP_TIME),
    "time_std_dev_seconds": JsonField("std", metrics.STEP_TIME),
    "tflops_per_gpu_mean": JsonField("mean", metrics.TFLOPS_PER_GPU),
    "tflops_per_gpu_std_dev": JsonField("std", metrics.TFLOPS_PER_GPU),
    "tokens_per_second": JsonField("mean", metrics.TOKENS_PER_SECOND),
    "tokens_per_second_per_gpu": JsonField("mean", metrics.TOKENS_PER_SECOND_PER_GPU),
    "model_tflops_per_gpu": JsonField("mean", metrics.MODEL_TFLOPS_PER_GPU),
    "mfu": JsonField("mean", metrics.MFU),
    "days_per_1t_tokens": JsonField("metrics", "days_per_1t_tokens"),
    "model_flops": JsonField("metrics", "model_flops"),
    "flops_convention": JsonField("metrics", "flops_convention"),
    "reference": JsonField("verdict", "reference"),
    "ratio": JsonField("verdict", "ratio"),
    "verdict": JsonField("verdict", "word"),
    "verdict_reason": JsonField("verdict", "reason"),
    "repeats": JsonField("verdict", "repeats"),
    "pooled_ratio": JsonField("verdict", "pooled_ratio"),
    "ratio_interval": JsonField("verdict", "ratio_interval"),
    "same_window": JsonField("verdict", "same_window"),
    "run": JsonField("identity", "run"),
    "state": JsonField("", "state"),
    "cause": JsonField("", "cause"),
    "configuration": JsonField("identity", "configuration"),
    "invalid": JsonField("metrics", "invalid"),
    "statistics": JsonField("metrics", "statistics"),
    "log": JsonField("", "log"),
    "checkpoints": JsonField("", "checkpoints"),
    "not_said": JsonField("identity", "missing"),
    "mfu_reference_convention": JsonField("verdict", "mfu_reference_convention"),
    "reference_flops_convention": JsonField("verdict", "reference_flops_convention"),
    "first_iteration": JsonField("metrics", "first_iteration"),
    "metrics": JsonField("metrics", "measured"),
    "headline": JsonField("metrics", "headline"),
    "causes": JsonField("verdict", "causes"),
    "framework": JsonField("identity", "framework"),
}
_EXPLAINED = ("INVALID", "NO_REFERENCE")  # verdicts that no ratio explains
_PARTS = {"identity": Identity, "metrics": Metrics, "verdict": Verdict}
_MEANS = {place.name: key for key, place in FIELDS.items() if place.part == "mean"}
_DEVIATIONS = {place.name: key for key, place in FIELDS.items() if place.part == "std"}


def json_value(result: Result, key: str) -> Any:
    """The value of one of FIELDS.

    ``reason`` is that of the verdict where the run has none, and the ratio does not explain the verdict.
    """
    place, verdict = FIELDS[key], result.verdict
    if key == "reason" and result.reason is None and (verdict.word in _EXPLAINED or verdict.causes):
        return verdict.reason
    if place.part in ("mean", "std"):
        own = result.metrics.measured.get(place.name)
        return None if own is None else getattr(own, place.part)
    return getattr(getattr(result, place.part) if place.part else result, place.name)


def from_json(values: Mapping[str, Any]) -> Result:
    """The result with these ``values`` of FIELDS; those of earlier releases have no ``metrics``, only the fields."""
    parts: dict[str, dict[str, Any]] = {"": {}, "identity": {}, "metrics": {}, "verdict": {}}
    for key, value in values.items():
        if key != "metrics" and (place := FIELDS[key]).part in parts:
            parts[place.part][place.name] = value
    window = values.get("window")
    count = 0 if window is None else window.last - window.first + 1
    parts["metrics"]["measured"] = {
        name: metrics.TRAINING_BY_NAME[name].measured(mean, values.get(_DEVIATIONS.get(name, "")) or 0.0, count)
        for name, key in _MEANS.items()
        if (mean := values.get(key)) is not None
    } | dict(values.get("metrics") or {})
    return Result(**parts[""], **{name: part(**parts[name]) for name, part in _PARTS.items()})


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
_OMITTED = (CheckpointTime, Uneven)  # each event: the last ones are in `checkpoints`; `causes` names nodes
_METRICS = "metrics"  # a mean and a deviation of each metric that has no field of its own
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
    found = [leaf for name in FIELDS if name != _METRICS for leaf in _walk(name, name, _NESTED.get(name), ())]
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


CSV_FIRST = [
    *("filename", "status", "time_mean_seconds", "time_std_dev_seconds"),
    *("tflops_per_gpu_mean", "tflops_per_gpu_std_dev", "max_iteration"),
]


def csv_columns(results: Iterable[Result]) -> list[Column]:
    """The columns of CSV: all fields, those of the contract first, then the metrics that workloads declare."""
    declared = [key for result in results for key in _declared(result)]
    return [Column(key=key) for key in dict.fromkeys((*CSV_FIRST, *(leaf.key for leaf in _leaves()), *declared))]


def csv_rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    """The rows of CSV: lists as words with blanks between them, mappings as K=V, a window as ``--window`` takes it."""
    return [
        {leaf.key: _text(_value(result, leaf)) for leaf in _leaves()}
        | {"filename": Path(result.identity.path).name}
        | _declared(result)
        for result in results
    ]


def _declared(result: Result) -> dict[str, float]:
    """Mean and deviation of each metric that a workload declares, by column; those of training have fields."""
    own = {name: one for name, one in result.metrics.measured.items() if name not in metrics.TRAINING_BY_NAME}
    pairs = (((f"{name}_mean", one.mean), (f"{name}_std", one.std)) for name, one in own.items())
    return {key: value for pair in pairs for key, value in pair}
