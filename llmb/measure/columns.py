# SPDX-License-Identifier: Apache-2.0
"""Results as data and as tables: JSON, CSV, and the columns for people."""

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from llmb.contract import metrics
from llmb.contract.record import Session
from llmb.contract.samples import Straggler
from llmb.contract.settings import COMPARED, Settings
from llmb.contract.window import Window, default_window
from llmb.core import typed
from llmb.core.tables import Column
from llmb.core.times import iso
from llmb.measure.checkpoints import Checkpoints
from llmb.measure.facts import CheckpointTime, LogFacts
from llmb.measure.failure_causes import Cause
from llmb.measure.result import (
    FAILED,
    SUCCESS,
    Identity,
    Metrics,
    MetricVerdict,
    ReferenceValue,
    Result,
    SustainedVerdict,
    Verdict,
)
from llmb.measure.statistics import Statistics
from llmb.measure.sustained import Sustained
from llmb.measure.uneven import Uneven


class JsonField(NamedTuple):
    """The place of a field of the JSON form in a ``Result``."""

    part: str  #: empty: the result itself. ``mean`` and ``std``: of the metric ``name``
    name: str


# Of objects of `--format json`. It grows when a field is removed or changes its meaning.
SCHEMA_VERSION = 1
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
    "session": JsonField("identity", "session"),
    "pair": JsonField("identity", "pair"),
    "nodes": JsonField("", "nodes"),
    "losses": JsonField("metrics", "losses"),
    "sustained": JsonField("metrics", "sustained"),
    "sustained_verdict": JsonField("verdict", "sustained"),
}
_VALUES = {
    key: attrgetter(f"{place.part}.{place.name}" if place.part else place.name)
    for key, place in FIELDS.items()
    if place.part not in ("mean", "std")
}
_EXPLAINED = ("INVALID", "NO_REFERENCE")  # verdicts that no ratio explains
_DECIDED = ("FAIL", "INCONCLUSIVE", "WARN", "SUSPICIOUS")
_PARTS = {"identity": Identity, "metrics": Metrics, "verdict": Verdict}


def json_value(result: Result, key: str) -> Any:
    """Return the value of one of FIELDS.

    ``reason`` is the verdict's reason if the run has none and the ratio does not explain the
    verdict.
    """
    if key == "reason" and result.reason is None:
        verdict = result.verdict
        needs_words = verdict.word in _EXPLAINED or verdict.causes or is_by_other_metric(result)
        return verdict.reason if needs_words else None
    if (value := _VALUES.get(key)) is not None:
        return value(result)
    place = FIELDS[key]
    measured = result.metrics.measured.get(place.name)
    return None if measured is None else getattr(measured, place.part)


def is_by_other_metric(result: Result) -> bool:
    """Return True if the headline's ratio does not explain a verdict: its limits or others do."""
    verdict, headline = result.verdict, result.metrics.headline
    if verdict.word not in _DECIDED:
        return False
    if verdict.faults or verdict.reference is None or verdict.reference.metric != headline:
        return True
    judged = verdict.metrics.get(headline)
    return judged is not None and judged.word != verdict.word


def from_json(values: Mapping[str, Any]) -> Result:
    """Return the result with these ``values`` of FIELDS. ``metrics`` has all that it measured."""
    parts: dict[str, dict[str, Any]] = {"": {}, "identity": {}, "metrics": {}, "verdict": {}}
    for key, value in values.items():
        if (place := FIELDS[key]).part in parts:
            parts[place.part][place.name] = value
    return Result(**parts[""], **{name: part(**parts[name]) for name, part in _PARTS.items()})


# The fields of a metric's verdict, by their names in JSON.
METRIC_VERDICT = {
    "reference": "reference",
    "ratio": "ratio",
    "interval": "interval",
    "verdict": "word",
    "reason": "reason",
}


def verdicts_in_json(verdicts: Mapping[str, MetricVerdict]) -> dict[str, Any]:
    """Return the verdict of each metric as data."""
    return {
        name: {
            key: typed.json_data(getattr(verdict, field)) for key, field in METRIC_VERDICT.items()
        }
        for name, verdict in verdicts.items()
    }


def metrics_in_json(
    measured: Mapping[str, metrics.Measured], verdicts: Mapping[str, MetricVerdict]
) -> dict[str, Any]:
    """Return each metric as data, with its verdict; null if it has none."""
    known, nothing = verdicts_in_json(verdicts), dict.fromkeys(METRIC_VERDICT)
    return {
        name: typed.json_data(value) | known.get(name, nothing) for name, value in measured.items()
    }


def _row(result: Result, shared: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Return a result as data. ``shared``: what repeats have in common, by identity."""
    row = {key: json_value(result, key) for key in FIELDS}
    measured, row[_METRICS] = row[_METRICS], None
    for key, value in row.items():
        if type(value) not in typed.EXACT:
            data = shared.get(id(value)) or typed.json_data(value)
            if type(data) is dict:
                shared[id(value)] = data
                data = {**data}
            row[key] = data
    row[_METRICS] = metrics_in_json(measured, result.verdict.metrics)
    return row


def report(results: Sequence[Result], sessions: Iterable[Session] = ()) -> dict[str, Any]:
    """Return the content of ``--format json``: version, window, sessions, results, a summary.

    The window is null if the results differ in it. The success rate is of runs with status Success
    or Failed, in whole percent rounded down: 100 means all of them.
    """
    windows = {result.metrics.window for result in results if result.metrics.window is not None}
    common = (windows or {default_window(50)}).pop() if len(windows) < 2 else None
    succeeded = sum(result.status == SUCCESS for result in results)
    failed = sum(result.status == FAILED for result in results)
    ended = succeeded + failed
    shared: dict[int, dict[str, Any]] = {}
    return {
        "schema_version": SCHEMA_VERSION,
        "analysis": {
            "min_iteration": common.first if common else None,
            "max_iteration": common.last if common else None,
        },
        "sessions": [
            {**typed.to_data(session), "created": iso(session.created)} for session in sessions
        ],
        "results": [_row(result, shared) for result in results],
        "summary": {
            "success_experiments": succeeded,
            "failed_experiments": failed,
            "success_rate": 100 * succeeded // ended if ended else None,
        },
    }


_BARE = (Settings,)  # its fields keep their names, unless a result has them too
_ENDS = (
    "ratio_interval",
    "interval",
    "drift_interval",
)  # a lower and an upper end, which become two columns
# each event: the last ones are in `checkpoints`; `causes` names nodes
_OMITTED = (CheckpointTime, Uneven, Straggler)
_NODES = "nodes"  # a list of what was measured on each
_METRICS = "metrics"  # a mean and a deviation of each metric that has no field of its own
_SETTINGS = "configuration"
_LOSSES = "losses"  # a curve
_NESTED = {
    "reference": ReferenceValue,
    "cause": Cause,
    _SETTINGS: Settings,
    "statistics": Statistics,
    "sustained": Sustained,
    "sustained_verdict": SustainedVerdict,
    "log": LogFacts,
    "checkpoints": Checkpoints,
}


class _Leaf(NamedTuple):
    """A column of CSV."""

    key: str
    field: str  #: of the result
    below: tuple[str, ...] = ()  #: the names below the field
    end: int | None = None  #: 0 or 1: the end of an interval


@cache
def _leaves() -> tuple[_Leaf, ...]:
    """Return the columns in the order of the fields.

    Nested values come last, with the name of their owner before their own.
    """
    leaves: dict[str, _Leaf] = {}
    candidates = [
        leaf
        for name in FIELDS
        if name not in (_METRICS, _NODES, _LOSSES)
        for leaf in _walk(name, name, _NESTED.get(name), ())
    ]
    for leaf in sorted(candidates, key=lambda leaf: bool(leaf.below)):
        leaves.setdefault(leaf.key, leaf)
    return tuple(leaves.values())


def _walk(field: str, key: str, cls: type | None, below: tuple[str, ...]) -> Iterator[_Leaf]:
    if cls is None:
        name = below[-1] if below else field
        if name in _ENDS:
            stem = key.removesuffix("_interval")
            yield from (
                _Leaf(f"{stem}_{word}", field, below, end)
                for end, word in enumerate(("low", "high"))
            )
        else:
            yield _Leaf(key, field, below)
        return
    hints = typing.get_type_hints(cls)
    prefix = "" if cls in _BARE else f"{key}_"
    for name in (
        COMPARED if cls is Settings else [column.name for column in dataclasses.fields(cls)]
    ):
        kinds = (hints[name], *typing.get_args(hints[name]))
        inner = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
        if inner not in _OMITTED:
            assert inner is None or isinstance(inner, type)
            yield from _walk(field, prefix + name, inner, (*below, name))


def _value(value: Any, leaf: _Leaf) -> Any:
    """Return what the column has of the ``value`` of its field."""
    for name in leaf.below:
        value = None if value is None else getattr(value, name)
    return value if leaf.end is None or value is None else value[leaf.end]


def _text(value: Any) -> Any:
    if type(value) in typed.PLAIN:
        return value
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
    """Return the columns of CSV: the contract's first, then other fields, then declared metrics."""
    declared = [key for result in results for key in _declared(result)]
    return [
        Column(key=key)
        for key in dict.fromkeys((*CSV_FIRST, *(leaf.key for leaf in _leaves()), *declared))
    ]


def csv_rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return the rows of CSV.

    Lists are words with blanks between them, mappings are K=V, a window is as ``--window`` takes
    it.
    """
    leaves = _leaves()
    fields = {leaf.field for leaf in leaves}
    values = (
        (result, {field: json_value(result, field) for field in fields}) for result in results
    )
    return [
        {leaf.key: _text(_value(of_field[leaf.field], leaf)) for leaf in leaves}
        | {"filename": Path(result.identity.path).name}
        | _declared(result)
        for result, of_field in values
    ]


def _declared(result: Result) -> dict[str, float | None]:
    """Return mean and deviation of each metric that a workload declares, by column.

    Metrics of training have fields of their own.
    """
    declared = {
        name: measured
        for name, measured in result.metrics.measured.items()
        if name not in metrics.TRAINING_BY_NAME
    }
    pairs = (
        ((f"{name}_mean", measured.mean), (f"{name}_std", measured.std))
        for name, measured in declared.items()
    )
    return {key: value for pair in pairs for key, value in pair}
