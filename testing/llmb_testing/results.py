# SPDX-License-Identifier: Apache-2.0
"""Results by the fields that `llmb-run results --format json` prints, for tests of judgements."""

from collections.abc import Mapping
from typing import Any

from llmb.contract.metrics import TRAINING_BY_NAME
from llmb.measure.columns import FIELDS, from_json
from llmb.measure.result import Result


def result_of(values: Mapping[str, Any]) -> Result:
    """Return the result with these ``values`` of FIELDS.

    Values of training, such as ``time_mean_seconds``, become metrics over the window.
    """
    window = values.get("window")
    count = 0 if window is None else window.last - window.first + 1
    means = {place.name: key for key, place in FIELDS.items() if place.part == "mean"}
    deviations = {place.name: key for key, place in FIELDS.items() if place.part == "std"}
    measured = {
        name: TRAINING_BY_NAME[name].measured(
            mean, values.get(deviations.get(name, "")) or 0.0, count
        )
        for name, key in means.items()
        if (mean := values.get(key)) is not None
    }
    return from_json({**values, "metrics": measured | values.get("metrics", {})})
