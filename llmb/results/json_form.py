# SPDX-License-Identifier: Apache-2.0
"""The JSON form of a result: the name and the place of each field, and a result from its fields."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from llmb.results.result import Identity, Metrics, Result, Verdict
from llmb.stats.metrics import (
    MFU,
    MODEL_TFLOPS_PER_GPU,
    STEP_TIME,
    TFLOPS_PER_GPU,
    TOKENS_PER_SECOND,
    TOKENS_PER_SECOND_PER_GPU,
    TRAINING_BY_NAME,
)


class JsonField(NamedTuple):
    """Where a field of the JSON form is in a ``Result``: the name of its part (empty: the result), and its own."""

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
    "time_mean_seconds": JsonField("metrics", "step_time"),
    "time_std_dev_seconds": JsonField("metrics", "step_time_deviation"),
    "tflops_per_gpu_mean": JsonField("metrics", "framework_tflops"),
    "tflops_per_gpu_std_dev": JsonField("metrics", "framework_tflops_deviation"),
    "tokens_per_second": JsonField("metrics", "tokens_per_second"),
    "tokens_per_second_per_gpu": JsonField("metrics", "tokens_per_second_per_gpu"),
    "model_tflops_per_gpu": JsonField("metrics", "model_tflops_per_gpu"),
    "mfu": JsonField("metrics", "mfu"),
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
_MEASURED = {  # the fields of mean and deviation that each metric of training has besides
    STEP_TIME: ("time_mean_seconds", "time_std_dev_seconds"),
    TFLOPS_PER_GPU: ("tflops_per_gpu_mean", "tflops_per_gpu_std_dev"),
    **{name: (name, "") for name in (TOKENS_PER_SECOND, TOKENS_PER_SECOND_PER_GPU, MODEL_TFLOPS_PER_GPU, MFU)},
}


def json_value(result: Result, key: str) -> Any:
    """The value of one of FIELDS.

    ``reason`` is that of the verdict where the run has none, and the ratio does not explain the verdict.
    """
    place, verdict = FIELDS[key], result.verdict
    if key == "reason" and result.reason is None and (verdict.word in _EXPLAINED or verdict.causes):
        return verdict.reason
    return getattr(getattr(result, place.part) if place.part else result, place.name)


def from_json(values: Mapping[str, Any]) -> Result:
    """The result with these ``values`` of FIELDS; those of earlier releases have no ``metrics``, only the fields."""
    parts: dict[str, dict[str, Any]] = {"": {}, "identity": {}, "metrics": {}, "verdict": {}}
    derived = {"metrics", *(name for names in _MEASURED.values() for name in names)}
    for key, value in values.items():
        if key not in derived:
            parts[FIELDS[key].part][FIELDS[key].name] = value
    window = values.get("window")
    count = 0 if window is None else window.last - window.first + 1
    parts["metrics"]["measured"] = {
        name: TRAINING_BY_NAME[name].measured(mean, values.get(deviation) or 0.0, count)
        for name, (key, deviation) in _MEASURED.items()
        if (mean := values.get(key)) is not None
    } | dict(values.get("metrics") or {})
    return Result(**parts[""], **{name: part(**parts[name]) for name, part in _PARTS.items()})
