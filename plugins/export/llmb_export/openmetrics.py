# SPDX-License-Identifier: Apache-2.0
"""Results as OpenMetrics text, which the textfile collector of node_exporter reads too.

That collector reads Prometheus' older text format, in which counters have other names, and refuses
time stamps. So every metric is a gauge without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from statistics import fmean, harmonic_mean
from typing import Any

from llmb_export.names_of_units import UNITS_OF_FIELDS, name_and_factor
from llmb_export.results import VERDICTS, WORST_FIRST, Results, Row, ratio_of
from llmb_export.variants import variants_of

Labels = tuple[tuple[str, str], ...]

_RESERVED = ("ratio", "verdict", "runs", "run_timestamp", "node")
#: Rates at a step time or energy. Of repeats they are those at its mean, as in llmb's own results:
#: a mean of rates would give fast runs too much weight.
_RATES = (
    *("tokens_per_second", "tokens_per_second_per_gpu", "model_tflops_per_gpu"),
    *("tflops_per_gpu", "mfu", "tokens_per_joule"),
)
#: llmb's own metrics whose names say their units otherwise.
_OWN = {"joules_per_step": "J/GPU"}
_SHARE = "throttle"  # a mapping from reasons to shares


@dataclass(slots=True)
class _Family:
    """The samples of one metric, by labels, with one for each repeat."""

    help: str
    unit: str = ""
    is_rate: bool = False
    samples: dict[Labels, list[float]] = field(default_factory=dict)


class _Families(dict[str, _Family]):
    def add(
        self,
        name: str,
        text: str,
        labels: Labels,
        value: float,
        unit: str = "",
        *,
        is_rate: bool = False,
    ) -> None:
        family = self.setdefault(name, _Family(help=text, unit=unit, is_rate=is_rate))
        family.samples.setdefault(labels, []).append(value)


def render(results: Results) -> str:
    """Return the text, one set of series for each configuration of an experiment."""
    families = _Families()
    for labels, rows in _series(results).items():
        _add_runs(families, results, rows, labels)
        succeeded = [row for row in rows if row["status"] == "Success"]
        # An invalid measurement would distort the mean of the valid ones.
        valid = [row for row in succeeded if row["verdict"] != "INVALID"] or succeeded
        _add_verdict(families, rows, labels)
        for row in valid:
            _add_measured(families, row, labels)
        for row in succeeded:
            _add_nodes(families, row, labels)
    lines = (line for name in sorted(families) for line in _lines(name, families[name]))
    return "".join(f"{line}\n" for line in (*lines, "# EOF"))


def _labels(row: Row) -> Labels:
    settings = row["configuration"] or {}
    values = {
        "experiment": row["experiment"],
        "workload": settings.get("workload"),
        "size": settings.get("model_size"),
        "dtype": settings.get("dtype"),
        "gpu_type": settings.get("gpu_type"),
        "gpus": settings.get("scale"),
    }
    return tuple((name, "" if value is None else str(value)) for name, value in values.items())


def _series(results: Results) -> dict[Labels, list[Row]]:
    """Return the runs of each series: of the newest session that has its experiment.

    A series has the label ``variant`` if that session has several configurations of the experiment.
    """
    by_experiment: dict[Labels, list[Row]] = {}
    for row in results.rows:
        by_experiment.setdefault(_labels(row), []).append(row)
    series: dict[Labels, list[Row]] = {}
    for labels, rows in by_experiment.items():
        newest = max(map(results.session_began, rows))
        rows = [row for row in rows if results.session_began(row) == newest]
        for row, variant in zip(rows, variants_of(rows), strict=True):
            key = (*labels, ("variant", variant)) if variant else labels
            series.setdefault(key, []).append(row)
    return series


def _add_runs(families: _Families, results: Results, rows: Sequence[Row], labels: Labels) -> None:
    for row in rows:
        text = "Number of runs by status."
        families.add("llmb_runs", text, (*labels, ("status", row["status"])), 1.0)
        if (times := results.times_of(row)) is not None:
            name, text = "llmb_run_timestamp_seconds", "Time of the newest submission, since 1970."
            families.add(name, text, labels, times.submitted, "seconds")


def _add_verdict(families: _Families, rows: Sequence[Row], labels: Labels) -> None:
    words = {row["verdict"] for row in rows}
    worst = next((word for word in WORST_FIRST if word in words), None)
    for verdict in VERDICTS if worst is not None else ():
        text = "Verdict on all repeats, the worst of several: 1 for it, else 0."
        value = float(verdict == worst)
        families.add("llmb_verdict", text, (*labels, ("verdict", verdict)), value)


def _add_measured(families: _Families, row: Row, labels: Labels) -> None:
    if (ratio := ratio_of(row)) is not None:
        text = "Measured speed relative to the reference; above 1 is better."
        families.add("llmb_ratio", text, (*labels, ("metric", row["headline"])), ratio, "ratio")
    for name, measured in row["metrics"].items():
        stem = f"metric_{name}" if name in _RESERVED else name
        text = f"Mean of {name} over the measured window, in a run."
        is_rate = name in _RATES
        _add(families, stem, measured["unit"], text, labels, measured["mean"], is_rate=is_rate)


def _add_nodes(families: _Families, row: Row, labels: Labels) -> None:
    for node in row["nodes"]:
        labels_of_node = (*labels, ("node", node["name"]))
        for path, value in _numbers(node.get("telemetry") or {}):
            field_name, *below = path
            if field_name == _SHARE:
                text = "Share of the run in which a GPU of the node was slowed, by reason."
                reason = ("reason", "_".join(below))
                families.add(
                    "llmb_node_throttle_ratio", text, (*labels_of_node, reason), value, "ratio"
                )
                continue
            stem, _, unit = field_name.rpartition("_")
            if unit not in UNITS_OF_FIELDS:
                stem, unit = field_name, "s" if field_name == "seconds" else ""
            unit = UNITS_OF_FIELDS.get(unit, unit)
            stem = "sampled" if stem == "seconds" else stem
            text = f"{' '.join(path)} of a node's GPUs, sampled in a run."
            _add(families, "_".join(["node", stem, *below]), unit, text, labels_of_node, value)


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield each number in a mapping of mappings, with its path."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from (((name, *path), number) for path, number in _numbers(value))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield (name,), float(value)


def _add(
    families: _Families,
    stem: str,
    unit: str,
    text: str,
    labels: Labels,
    value: float | None,
    *,
    is_rate: bool = False,
) -> None:
    if value is None:  # JSON has no number for nan and inf
        return
    suffix, factor = name_and_factor(unit)
    name = f"llmb_{_word(stem)}"
    if suffix and not _says(name, suffix) and _OWN.get(stem) != unit:
        name = f"{name}_{suffix}"
    families.add(name, text, labels, value * factor, suffix, is_rate=is_rate)


def _says(name: str, suffix: str) -> bool:
    """Return True if the unit ``suffix`` is in the name as a whole, as in tokens_per_second."""
    words = f"_{suffix}_"
    return any(own in f"{name}_" for own in (words, words.replace("_per_s_", "_per_second_")))


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _lines(name: str, family: _Family) -> Iterator[str]:
    yield f"# HELP {name} {_escaped(family.help)}"
    yield f"# TYPE {name} gauge"
    if family.unit and name.endswith(f"_{family.unit}"):
        yield f"# UNIT {name} {family.unit}"
    for labels, values in family.samples.items():
        pairs = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
        yield f"{name}{{{pairs}}} {_number(_reduced(name, family, values))}"


def _reduced(name: str, family: _Family, values: Sequence[float]) -> float:
    """Return the value of all repeats."""
    if name == "llmb_runs":
        return sum(values)
    if name == "llmb_run_timestamp_seconds":
        return max(values)
    if not all(map(isfinite, values)):
        return sum(values) / len(values)
    if family.is_rate and min(values) > 0:
        return harmonic_mean(values)
    return fmean(values)


def _number(value: float) -> str:
    """Return a number as OpenMetrics writes it."""
    if isfinite(value):
        return repr(value)
    return {inf: "+Inf", -inf: "-Inf"}.get(value, "NaN")


def _escaped(text: str) -> str:
    """Return text as a label's value. Characters without a place in a line are replaced."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"').replace("\r", " ")
