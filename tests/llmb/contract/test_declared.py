# SPDX-License-Identifier: Apache-2.0
"""Tests of what a workload declares of its own, metrics and parameters, and of workloads that train
nothing.
"""

from typing import Any

import pytest

from llmb.contract.parameters import Parameter, values_of
from llmb.contract.spec import Workload
from llmb.core import typed
from llmb.core.yamlfile import Document
from llmb.errors import InputFaults, KeyFaultError, UsageError

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


MODEL, ROW = PLAIN["sizes"]["a"]["model"], PLAIN["sizes"]["a"]["rows"][0]
METRICS = [{"name": "busbw", "unit": "GB/s"}, {"name": "latency", "unit": "us", "better": "lower"}]
BARE = {"gpu": "any", "dtype": "bf16", "scales": [1, 2, 4]}


def untrained(**of_size: Any) -> dict[str, Any]:
    """The changes that make it a workload without a model."""
    return {"metrics": METRICS, "sizes": {"a": {"rows": [BARE], **of_size}}}


def test_training_metrics_come_first() -> None:
    own = read(metrics=[{"name": "peak_memory", "unit": "GB", "better": "lower"}])
    assert own.is_training
    first = own.headline("a")
    assert (first.name, first.unit, first.better) == ("step_time", "s", "lower")
    assert own.all_metrics("a")[-1].name == "peak_memory"


@pytest.mark.parametrize(
    ("changes", "code", "key"),
    [
        ({"metrics": [{"name": "bus bw"}]}, "name-invalid", "metrics.0.name"),
        ({"metrics": [{"name": "mfu"}]}, "name-reserved", "metrics.0.name"),
        ({"metrics": [{"name": "a"}, {"name": "a"}]}, "name-duplicate", "metrics.1.name"),
        ({"metrics": [{"name": "a", "better": "up"}]}, "value-not-allowed", "metrics.0.better"),
        ({"parameters": {"gbs": {"default": 1}}}, "name-reserved", "parameters.gbs"),
        *(
            ({"parameters": {name: {"default": 1}}}, "name-reserved", f"parameters.{name}")
            for name in ("dtype", "scale", "gpus", "nsys", "framework", "Dtype", "max_steps")
        ),
        (
            {"parameters": {"Alpha": {"default": 1}, "alpha": {"default": 1}}},
            "name-duplicate",
            "parameters.alpha",
        ),
        ({"metrics": [{"name": "LAT"}, {"name": "lat"}]}, "name-duplicate", "metrics.1.name"),
        ({"metrics": [{"name": "MFU"}]}, "name-reserved", "metrics.0.name"),
        ({"parameters": {"t": {"default": "p2"}}}, "value-reserved", "parameters.t.default"),
        (
            {"parameters": {"ns": {"default": "a", "choices": ["a", "ys"]}}},
            "value-reserved",
            "parameters.ns.choices",
        ),
        ({"parameters": {"size": {"default": "a_b"}}}, "value-invalid", "parameters.size.default"),
        ({"parameters": {"a/b": {"default": 1}}}, "name-invalid", "parameters.a/b"),
        ({"parameters": {"size": {"default": "../x"}}}, "value-invalid", "parameters.size.default"),
        (
            {"parameters": {"size": {"default": 1, "choices": [2, 3]}}},
            "value-not-allowed",
            "parameters.size.default",
        ),
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


def test_without_a_model_there_are_only_its_own_metrics() -> None:
    own = read(**untrained())
    assert not own.is_training
    assert [spec.name for spec in own.all_metrics("a")] == ["busbw", "latency"]
    assert (own.headline("a").name, own.headline("a").better) == ("busbw", "higher")


def test_a_size_chooses_its_metrics_and_headline() -> None:
    own = read(**untrained(metrics=["latency"]))
    assert [spec.name for spec in own.all_metrics("a")] == ["latency"]
    assert own.headline("a").unit == "us"
    both = read(metrics=METRICS, sizes={"a": {**PLAIN["sizes"]["a"], "metrics": ["latency"]}})
    assert both.headline("a").name == "step_time"
    assert [spec.name for spec in both.all_metrics("a")][-1] == "latency"
    assert "busbw" not in [spec.name for spec in both.all_metrics("a")]


def test_a_size_chooses_its_parameters() -> None:
    both = {"parameters": {"message_size": {"default": 1}, "algorithm": {"default": "auto"}}}
    for chosen, names in (
        (None, ["message_size", "algorithm"]),
        (["algorithm"], ["algorithm"]),
        ([], []),
    ):
        own = read(**untrained(**({} if chosen is None else {"parameters": chosen})), **both)
        assert list(own.parameters_of("a")) == names


@pytest.mark.parametrize(
    ("changes", "code", "key", "value"),
    [
        (untrained(rows=[{**BARE, "mbs": 1}]), "not-training", "sizes.a.rows.0.mbs", 1),
        (
            untrained(rows=[BARE | {"dtype": "fp32"}, {**BARE, "tp": 2}]),
            "not-training",
            "sizes.a.rows.1.tp",
            2,
        ),
        (
            untrained(rows=[{**BARE, "strong_scaling": True}]),
            "not-training",
            "sizes.a.rows.0.strong_scaling",
            True,
        ),
        (untrained(learning_rate=0.1), "not-training", "sizes.a.learning_rate", 0.1),
        (untrained(proxy="a"), "not-training", "sizes.a.proxy", "a"),
        (
            {"sizes": {"a": {"rows": [BARE]}, "b": {"aliases": ["c", "A"], "rows": [BARE]}}},
            "name-duplicate",
            "sizes.b.aliases.1",
            "A",
        ),
        (untrained(metrics=["busbv"]), "metric-unknown", "sizes.a.metrics.0", "busbv"),
        (untrained(parameters=["size"]), "parameter-unknown", "sizes.a.parameters.0", "size"),
        (untrained(metrics=["busbw", "busbw"]), "name-duplicate", "sizes.a.metrics.1", "busbw"),
        (untrained() | {"metrics": []}, "key-missing", "", "metrics"),
        (
            untrained() | {"profiles": {"1.0": {"start": 1, "stop": 2}}},
            "not-training",
            "profiles",
            None,
        ),
        ({"sizes": PLAIN["sizes"] | {"b": {"rows": [BARE]}}}, "key-missing", "sizes.b", "model"),
        (
            {"sizes": {"a": {"model": MODEL, "rows": [{**ROW, "mbs": None}]}}},
            "key-missing",
            "sizes.a.rows.0",
            "mbs",
        ),
        (
            {"sizes": {"a": {"model": MODEL, "rows": [BARE]}}},
            "key-missing",
            "sizes.a.rows.0",
            "mbs",
        ),
    ],
)
def test_faults_of_workloads_without_a_model(
    changes: dict[str, Any], code: str, key: str, value: object
) -> None:
    with pytest.raises(InputFaults) as caught:
        read(**changes)
    assert [(fault.code, fault.key) for fault in caught.value.faults] == [(code, key)]
    if value is not None:
        assert caught.value.value == value
    if code == "metric-unknown":
        assert caught.value.faults[0].hint is not None
        assert "'busbw'" in caught.value.faults[0].hint


def test_a_row_without_a_model_has_no_batch() -> None:
    own = read(**untrained())
    assert own.sizes["a"].rows[0].batch(8) is None
    with pytest.raises(UsageError) as caught:
        own.sizes["a"].trained_model  # noqa: B018  (a property that raises)
    assert caught.value.code == "not-training"


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("128", "one of 512, 8G, ring"),
        ("8g", "did you mean '8G'?"),
        ("rng", "did you mean 'ring'?"),
    ],
)
def test_no_other_number_is_suggested(value: str, hint: str) -> None:
    """512 is not meant by 128, whatever letters they share."""
    with pytest.raises(KeyFaultError) as refused:
        Parameter(default="512", choices=("512", "8G", "ring")).check(value)
    assert refused.value.hint == hint
