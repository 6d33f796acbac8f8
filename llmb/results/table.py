# SPDX-License-Identifier: Apache-2.0
"""Results as a table for people, and what needs to be explained below it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from llmb.results.checkpoints import in_words
from llmb.results.columns import json_value
from llmb.results.result import Metrics, Result
from llmb.stats.metrics import STEP_TIME, TFLOPS_PER_GPU, TRAINING_BY_NAME, MetricSpec, heading, shown
from llmb.text.tables import Column


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


_TABLE = (
    Column(key="run"),
    Column(key="experiment"),
    Column(key="status"),
    Column(key="metric", optional=True),
    Column(key="value", right=True),
    Column(key="deviation", heading="±", right=True, optional=True),
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
_MOST_OTHERS = 6  # metrics besides the headline in a table
_OPTIONS = {  # of parse, for each name in Identity.missing
    "workload": "-w W_SIZE",
    "dtype": "--dtype D",
    "scale": "--scale N",
    "gbs": "--gbs N",
    "gpu_type": "--gpu-type TYPE",
}
_EXPLAINED_BY_REASON = ("INVALID", "INCONCLUSIVE", _NOT_COMPARED)  # verdicts that the ratio does not explain


def table_of(results: Sequence[Result]) -> tuple[list[Column], list[dict[str, Any]]]:
    """The columns and rows of a table of ``results``; columns without a value are omitted.

    Where at least one run has something to be compared with, verdicts take the place of statuses: a run without a
    verdict shows its status there.
    """
    compared = any(result.verdict.word not in (None, _NOT_COMPARED) for result in results)
    metrics = {
        MetricSpec(name=result.metrics.headline, unit=own.unit, better=own.better)
        for result in results
        if (own := result.metrics.value) is not None
    }
    others = _others(results)
    rows = [_row(result, others, compared=compared, mixed=len(metrics) > 1) for result in results]
    omitted = {"verdict", "status"} - {"verdict" if compared else "status"} | (
        {"metric"} if len(metrics) < 2 else set()
    )
    title = "step (s)" if metrics <= {TRAINING_BY_NAME[STEP_TIME]} else heading(metrics, "measured")
    columns = [replace(own, heading=title) if own.key == "value" else own for own in _TABLE if own.key not in omitted]
    place = [own.key for own in columns].index("ratio")
    columns[place:place] = [
        Column(key=_other(spec), heading=heading([spec], ""), right=True, optional=True) for spec in others
    ]
    return [own for own in columns if any(row[own.key] is not None for row in rows)], rows


def _others(results: Iterable[Result]) -> list[MetricSpec]:
    """The metrics of workloads' own that are not the headline of their result, at most _MOST_OTHERS."""
    found: dict[MetricSpec, None] = {}
    for result in results:
        for name, own in result.metrics.measured.items():
            if name not in TRAINING_BY_NAME and name != result.metrics.headline:
                found[MetricSpec(name=name, unit=own.unit, better=own.better)] = None
    return list(found)[:_MOST_OTHERS]


def _other(spec: MetricSpec) -> str:
    return f"metric {spec.name} {spec.unit}"


def figure(name: str, value: float, unit: str = "") -> str:
    """A value of the metric ``name`` for people, with its unit if given; a step time has three decimals."""
    return f"{value:.3f} {unit}".strip() if name == STEP_TIME else shown(value, unit)


def _values(result: Result, others: Iterable[MetricSpec], *, mixed: bool) -> dict[str, Any]:
    """The cells of what was measured; ``mixed``: rows have several headline metrics, so values have their unit."""
    metrics, own = result.metrics, result.metrics.value
    unit = own.unit if own is not None and mixed else ""
    found = {_other(spec): metrics.measured.get(spec.name) for spec in others if spec.name != metrics.headline}
    return {
        "metric": own and metrics.headline,
        "value": own and figure(metrics.headline, own.mean, unit),
        "deviation": own and figure(metrics.headline, own.std, unit),
        **{_other(spec): None for spec in others},
        **{key: shown(one.mean) for key, one in found.items() if one is not None},
    }


def _row(result: Result, others: Sequence[MetricSpec], *, compared: bool, mixed: bool) -> dict[str, Any]:
    verdict = result.verdict
    star = "" if verdict.same_window else "*"  # the published figure was taken over another window
    same_formula = verdict.reference_flops_convention == result.metrics.flops_convention
    word = f"{verdict.word} (n={verdict.repeats})" if verdict.repeats else verdict.word
    why = verdict.reason
    if not (compared and verdict.word in _EXPLAINED_BY_REASON):  # the ratio is in a column of its own
        why = "; ".join(cause.text for cause in verdict.causes)
    return {
        **{name: json_value(result, name) for name in _COPIED},
        **_values(result, others, mixed=mixed),
        "tflops": _tflops(result.metrics),
        "mfu_reference": None if same_formula else verdict.mfu_reference_convention,
        "ratio": None if verdict.ratio is None else f"{verdict.ratio:.3f}{star}",
        "verdict": word or result.status,
        "reason": "; ".join(filter(None, (result.reason, why, *in_words(result.checkpoints)))) or None,
    }


def legend(results: Iterable[Result], baseline: str = "", *, archived: bool = False) -> list[str]:
    """What needs to be explained below a table of ``results``, a line each; ``baseline``: what they are compared with,
    empty for published figures; ``archived``: they are of an archive, which has no baselines of its own.
    """
    results = list(results)
    verdicts = [result.verdict for result in results]
    windows = {one.reference.window for one in verdicts if one.reference and one.same_window is False}
    what = baseline or "the published figure"
    lines = [f"* {what} is for another window: {', '.join(sorted(windows))}"] if windows else []
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
        own = sorted(word for word in missing if word not in _OPTIONS)
        options = [
            *(option for word, option in _OPTIONS.items() if word in missing),
            *(f"--set {word}=V" for word in own),
        ]
        lines.append(f"no verdict for a log that does not show its configuration; describe it with {' '.join(options)}")
    if results and not lines and all(verdict.word == _NOT_COMPARED for verdict in verdicts):
        against_baseline = f"no verdicts: {baseline} has nothing comparable"
        lines.append(against_baseline if baseline else _no_verdicts(results, archived=archived))
    return lines


def _no_verdicts(results: Sequence[Result], *, archived: bool) -> str:
    """Why no result has anything to be compared with; ``explain`` does not know logs without a run."""
    if all(result.identity.run is not None for result in results):
        why = "no verdicts: nothing is published for these configurations (llmb-run explain RUN says more)"
        return why if archived else f"{why}; llmb-run baseline accept NAME keeps them to judge later runs by"
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
    return None if logged is None else f"{logged.mean:.2f} ± {logged.std:.2f}"
