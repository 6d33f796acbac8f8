# SPDX-License-Identifier: Apache-2.0
"""Results as a table for people, and what needs to be explained below it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from llmb.contract.metrics import (
    ENERGY_BY_NAME,
    STEP_TIME,
    TFLOPS_PER_GPU,
    TRAINING_BY_NAME,
    MetricSpec,
    heading,
    shown,
    tflops_in_digits,
)
from llmb.core.tables import Column
from llmb.judge.deviation import chance_below
from llmb.judge.judge import pool_key
from llmb.judge.value import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    SUSPICIOUS,
    WARN,
    WARN_BELOW,
    bounds_of,
    ratio_in_digits,
)
from llmb.measure.checkpoints import in_words
from llmb.measure.columns import is_by_other_metric, json_value
from llmb.measure.result import Metrics, Result
from llmb.measure.result_notes import distinguishing, settings_of


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


_TABLE = (
    Column(key="run"),
    Column(key="session"),
    Column(key="experiment"),
    Column(key="status"),
    Column(key="metric", optional=True),
    Column(key="value", right=True),
    Column(key="deviation", heading="±", right=True, optional=True),
    Column(
        key="tokens_per_second_per_gpu",
        heading="tokens/s/GPU",
        show="{:.1f}".format,
        right=True,
        optional=True,
    ),
    Column(key="mfu", heading="MFU %", show=_percent, right=True, optional=True),
    Column(key="tflops", heading="TFLOPS/GPU", right=True, optional=True),
    Column(
        key="tokens_per_second", heading="tokens/s", show="{:.0f}".format, right=True, optional=True
    ),
    Column(
        key="mfu_reference",
        heading="MFU % by the reference's formula",
        show=_percent,
        right=True,
        optional=True,
    ),
    Column(key="ratio", right=True),
    Column(key="verdict"),
    Column(key="reason"),
)
_COPIED = (
    "run",
    "session",
    "experiment",
    "status",
    "tokens_per_second",
    "tokens_per_second_per_gpu",
    "mfu",
)
_NOT_COMPARED = "NO_REFERENCE"
_MOST_OTHERS = 6  # metrics besides the headline in a table
_OPTIONS = {  # of parse, for each name in Identity.missing
    "workload": "-w W_SIZE",
    "dtype": "--dtype D",
    "scale": "--scale N",
    "gbs": "--gbs N",
    "gpu_type": "--gpu-type TYPE",
}
# verdicts that the ratio does not explain
_EXPLAINED_BY_REASON = ("INVALID", "INCONCLUSIVE", _NOT_COMPARED)


def table_of(results: Sequence[Result]) -> tuple[list[Column], list[dict[str, Any]]]:
    """Return columns and rows of a table of ``results``. Columns without a value are omitted.

    Where at least one run has something to be compared with, verdicts take the place of statuses: a
    run without a verdict shows its status there.
    """
    compared = any(result.verdict.word not in (None, _NOT_COMPARED) for result in results)
    metrics = {
        MetricSpec(name=result.metrics.headline, unit=column.unit, better=column.better)
        for result in results
        if (column := result.metrics.value) is not None
    }
    other_metrics = _other_metrics(results)
    rows = [
        _row(result, other_metrics, note, compared=compared, mixed=len(metrics) > 1)
        for result, note in zip(results, _differing_settings(results), strict=True)
    ]
    omitted = {"verdict", "status"} - {"verdict" if compared else "status"} | (
        {"metric"} if len(metrics) < 2 else set()
    )
    if len({result.identity.session for result in results}) < 2:
        omitted.add("session")
    title = "step (s)" if metrics <= {TRAINING_BY_NAME[STEP_TIME]} else heading(metrics, "measured")
    columns = [
        replace(column, heading=title) if column.key == "value" else column
        for column in _TABLE
        if column.key not in omitted
    ]
    place = [column.key for column in columns].index("ratio")
    columns[place:place] = [
        Column(key=_other_key(spec), heading=heading([spec], ""), right=True, optional=True)
        for spec in other_metrics
    ]
    return [column for column in columns if any(row[column.key] is not None for row in rows)], rows


def _differing_settings(results: Iterable[Result]) -> list[str]:
    """Return the settings of each result that not all of its experiment share, such as --ab's."""
    identities = [result.identity for result in results]
    keys = [
        (
            identity.experiment,
            None if identity.configuration is None else identity.configuration.key,
        )
        for identity in identities
    ]
    distinct = dict(zip(keys, identities, strict=True))
    titled = [
        (identity.experiment, settings_of(identity.configuration, window=None))
        for identity in distinct.values()
    ]
    notes = dict(zip(distinct, distinguishing(titled), strict=True))
    return [notes[key] for key in keys]


def _other_metrics(results: Iterable[Result]) -> list[MetricSpec]:
    """Return at most _MOST_OTHERS of the workloads' own metrics that are no headline."""
    specs: dict[MetricSpec, None] = {}
    for result in results:
        for name, measured in result.metrics.measured.items():
            is_known = name in TRAINING_BY_NAME or name in ENERGY_BY_NAME
            if not is_known and name != result.metrics.headline:
                specs[MetricSpec(name=name, unit=measured.unit, better=measured.better)] = None
    return list(specs)[:_MOST_OTHERS]


def _other_key(spec: MetricSpec) -> str:
    return f"metric {spec.name} {spec.unit}"


def figure(name: str, value: float, unit: str = "") -> str:
    """Return a value for people, with its unit if given. A step time has three decimals."""
    return f"{value:.3f} {unit}".strip() if name == STEP_TIME else shown(value, unit)


def _values(result: Result, other_metrics: Iterable[MetricSpec], *, mixed: bool) -> dict[str, Any]:
    """Return the measured cells. In ``mixed`` tables, headlines differ, so values have units."""
    metrics, headline = result.metrics, result.metrics.value
    unit = headline.unit if headline is not None and mixed else ""
    measured = {
        _other_key(spec): metrics.measured.get(spec.name)
        for spec in other_metrics
        if spec.name != metrics.headline
    }
    return {
        "metric": headline and metrics.headline,
        "value": headline and figure(metrics.headline, headline.mean, unit),
        "deviation": headline
        and (None if headline.std is None else figure(metrics.headline, headline.std, unit)),
        **{_other_key(spec): None for spec in other_metrics},
        **{key: shown(spread.mean) for key, spread in measured.items() if spread is not None},
    }


def _row(
    result: Result, other_metrics: Sequence[MetricSpec], note: str, *, compared: bool, mixed: bool
) -> dict[str, Any]:
    verdict = result.verdict
    star = "" if verdict.same_window else "*"  # the published figure was taken over another window
    same_formula = verdict.reference_flops_convention == result.metrics.flops_convention
    word = f"{verdict.word} (n={verdict.repeats})" if verdict.repeats else verdict.word
    explanation = verdict.reason
    # the ratio is in a column of its own
    is_in_words = verdict.word in _EXPLAINED_BY_REASON or is_by_other_metric(result)
    # a measured run without a verdict has only its reason
    if verdict.word is not None and not (compared and is_in_words):
        explanation = "; ".join(cause.text for cause in verdict.causes)
    return {
        **{name: json_value(result, name) for name in _COPIED},
        **_values(result, other_metrics, mixed=mixed),
        "tflops": _tflops(result.metrics),
        "mfu_reference": None if same_formula else verdict.mfu_reference_convention,
        "ratio": None
        if verdict.ratio is None
        else f"{ratio_in_digits(verdict.ratio, bounds_of(result))}{star}",
        "verdict": word or result.status,
        "reason": (
            "; ".join(
                filter(None, (note, result.reason, explanation, *in_words(result.checkpoints)))
            )
            or None
        ),
    }


_COMPARED = (FAIL, INCONCLUSIVE, WARN, SUSPICIOUS, PASS)
_LEAST_EXPECTED = 0.05  # WARN by chance, below which the number says nothing


def legend(results: Iterable[Result], baseline: str = "", *, archived: bool = False) -> list[str]:
    """Return the explanations below a table of ``results``, a line each.

    ``baseline``: what they are compared with, empty for published figures. ``archived``: they are
    of an archive, which has no baselines of its own.
    """
    results = list(results)
    verdicts = [result.verdict for result in results]
    windows = {
        judged.reference.window
        for judged in verdicts
        if judged.reference and judged.same_window is False
    }
    reference = baseline or "the published figure"
    lines = (
        [f"* {reference} is for another window: {', '.join(sorted(windows))}"] if windows else []
    )
    configurations = [result.identity.configuration for result in results]
    if any(keys is not None and keys.gpu_type is None for keys in configurations):
        lines.append(
            "no verdict without a GPU type, which a log does not name: add --gpu-type h100, for"
            " example"
        )
    unknown = [
        result.identity
        for result in results
        if result.verdict.word == _NOT_COMPARED and result.identity.configuration is None
    ]
    if unknown:
        missing = {word for identity in unknown for word in identity.missing}
        keys = sorted(word for word in missing if word not in _OPTIONS)
        options = [
            *(option for word, option in _OPTIONS.items() if word in missing),
            *(f"--set {word}=V" for word in keys),
        ]
        lines.append(
            "no verdict for a log that does not show its configuration; describe it with"
            f" {' '.join(options)}"
        )
    lines += _by_chance(results)
    if results and not lines and all(verdict.word == _NOT_COMPARED for verdict in verdicts):
        against_baseline = f"no verdicts: {baseline} has nothing comparable"
        lines.append(against_baseline if baseline else _no_verdicts(results, archived=archived))
    return lines


def _by_chance(results: Iterable[Result]) -> list[str]:
    """Return how many WARN chance alone predicts, if there is one and chance may explain it."""
    intervals, has_warn = {}, False
    for result in results:
        verdict = result.verdict
        if verdict.ratio_interval is not None and verdict.word in _COMPARED:
            intervals[pool_key(result)] = verdict.ratio_interval
            has_warn |= verdict.word == WARN
    expected = sum(chance_below(WARN_BELOW, interval) for interval in intervals.values())
    if not has_warn or expected < _LEAST_EXPECTED:
        return []
    count = f"{len(intervals)} configuration{'s' if len(intervals) > 1 else ''}"
    return [
        f"If all were as fast as their reference, chance would give {expected:.1f} WARN among"
        f" {count}."
    ]


def _no_verdicts(results: Sequence[Result], *, archived: bool) -> str:
    """Explain why nothing can be compared. ``explain`` does not know logs without a run."""
    if all(result.identity.run is not None for result in results):
        cause = (
            "no verdicts: nothing is published for these configurations. To see the reason:"
            " llmb-run explain RUN"
        )
        return (
            cause
            if archived
            else f"{cause}. To judge later runs by these: llmb-run baseline accept NAME"
        )
    reasons = {result.verdict.reason for result in results}
    if len(reasons) == 1:
        return f"no verdicts: {reasons.pop()}"
    return (
        "no verdicts: nothing is published for these configurations (--format csv shows what"
        " differs)"
    )


def _tflops(metrics: Metrics) -> str | None:
    """Return TFLOPS by our formula, or for an unknown model as the framework logs them."""
    if metrics.model_tflops_per_gpu is not None:
        return tflops_in_digits(metrics.model_tflops_per_gpu)
    logged = metrics.measured.get(TFLOPS_PER_GPU)
    if logged is None:
        return None
    deviation = "" if logged.std is None else f" ± {logged.std:.2f}"
    return f"{logged.mean:.2f}{deviation}"
