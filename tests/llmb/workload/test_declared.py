# SPDX-License-Identifier: Apache-2.0
"""Tests of what a workload declares of its own: metrics and parameters."""

from typing import Any

import pytest

from llmb.errors import InputFaults
from llmb.text import typed
from llmb.text.yamlfile import Document
from llmb.workload.parameters import Parameter, values_of
from llmb.workload.spec import Workload

PLAIN: dict[str, Any] = {
    "key": "w",
    "title": "t",
    "default_size": "a",
    "default_dtype": "bf16",
    "sizes": {
        "a": {
            "model": {
                "architecture": "llama",
                "layers": 2,
                "hidden": 8,
                "ffn": 8,
                "heads": 2,
                "kv_groups": 2,
                "vocab": 8,
                "seq_length": 8,
            },
            "rows": [{"gpu": "any", "dtype": "bf16", "scales": 1, "mbs": 1, "gbs": 1}],
        }
    },
}


def read(**changes: Any) -> Workload:
    return typed.read(Workload, Document(name="w.yaml", data={**PLAIN, **changes}))


def test_training_metrics_come_first() -> None:
    own = read(metrics=[{"name": "peak_memory", "unit": "GB", "better": "lower"}])
    assert own.is_training
    assert (own.headline.name, own.headline.unit, own.headline.better) == ("step_time", "s", "lower")
    assert own.all_metrics[-1].name == "peak_memory"


@pytest.mark.parametrize(
    ("changes", "code", "key"),
    [
        ({"metrics": [{"name": "bus bw"}]}, "name-invalid", "metrics.0.name"),
        ({"metrics": [{"name": "mfu"}]}, "name-reserved", "metrics.0.name"),
        ({"metrics": [{"name": "a"}, {"name": "a"}]}, "name-duplicate", "metrics.1.name"),
        ({"metrics": [{"name": "a", "better": "up"}]}, "value-not-allowed", "metrics.0.better"),
        ({"parameters": {"gbs": {"default": 1}}}, "name-reserved", "parameters.gbs"),
        ({"parameters": {"a/b": {"default": 1}}}, "name-invalid", "parameters.a/b"),
        ({"parameters": {"size": {"default": "../x"}}}, "value-invalid", "parameters.size.default"),
        ({"parameters": {"size": {"default": 1, "choices": [2, 3]}}}, "value-not-allowed", "parameters.size.default"),
    ],
)
def test_faults(changes: dict[str, Any], code: str, key: str) -> None:
    with pytest.raises(InputFaults) as caught:
        read(**changes)
    assert [(fault.code, fault.key) for fault in caught.value.faults] == [(code, key)]


def test_parameter_values_are_text() -> None:
    own = read(parameters={"message_size": {"default": "16M", "choices": ["16M", 1024]}}).parameters
    assert own == {"message_size": Parameter(default="16M", choices=("16M", "1024"))}
    assert values_of(own, {}) == {"message_size": "16M"}
    assert values_of(own, {"message_size": "1024"}) == {"message_size": "1024"}
